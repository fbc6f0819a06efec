"""What the crash tests share: a fast folder, child processes, and strace."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from dfq.ambient import SYSTEM_CLOCK
from dfq.engines.file import FileQueue

CHILDREN = Path(__file__).parent / "children"
MEMORY_DISK = Path("/dev/shm")
#: The calls by which a queue changes its folder, or waits until it is safe.
CHANGING = (
    *("fsync", "syncfs", "write", "openat", "openat2", "renameat", "renameat2"),
    *("mkdir", "mkdirat", "unlinkat", "fcntl", "utimensat"),
)
#: The calls by which it only looks.
LOOKING = ("newfstatat", "fstat", "read", "getdents64")
#: A child makes this call, and no other reason for it exists, where the verb starts and ends.
MARK = "getpgid"
SECONDS = 60
HOUR = 3_600
FILLER = "x" * 500


@pytest.fixture
def folder() -> Iterator[Path]:
    """An empty folder, in memory if possible: a disk's own speed is not what is tested."""
    home = MEMORY_DISK if MEMORY_DISK.is_dir() else None
    path = Path(tempfile.mkdtemp(prefix="dfq-crash-", dir=home))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def child() -> Callable[..., list[str]]:
    """The command line of a child script."""
    return lambda script, *arguments: [sys.executable, str(CHILDREN / script), *map(str, arguments)]


@pytest.fixture
def template(folder: Path) -> Callable[[str], Path]:
    """A queue as a verb finds it: its target, and others that are none of its business."""

    def make(verb: str) -> Path:
        path = folder / f"{verb}-template"
        queue = FileQueue(path)

        def push(task_id: str, **options: object) -> None:
            queue.push({"id": task_id, "filler": FILLER}, id=task_id, **options)

        push("done")
        lease = queue.claim("before")
        queue.ack(lease, "finished")
        push("sad", max_attempts=1)
        queue.nack(queue.claim("before"), "it never works")
        attempts = 1 if verb in ("nack_last", "requeue") else 5
        push("target", max_attempts=attempts, delay=1_800 if verb == "claim_too_early" else None)
        if verb == "requeue":
            queue.nack(queue.claim("before"), "not yet")
        # Of a lower priority: a claim that tries them in any order makes other calls each time.
        push("bystander", delay=1_800, priority="low")
        queue.close()
        return path

    return make


@dataclass(frozen=True)
class Call:
    """One system call of the thread that made the verb."""

    name: str
    #: Its number among the calls of this name, from 1, as strace's ``when=`` counts.
    ordinal: int
    text: str
    #: Whether it was made between the marks.
    in_verb: bool

    @property
    def injected(self) -> bool:
        return "(INJECTED)" in self.text


@dataclass(frozen=True)
class Traced:
    """A child that ran under strace."""

    returncode: int
    stdout: str
    stderr: str
    calls: tuple[Call, ...]

    def verb(self, *names: str) -> list[Call]:
        """The calls between the marks, all or those of these names."""
        calls = (call for call in self.calls if call.in_verb and call.name != MARK)
        return [call for call in calls if not names or call.name in names]


ENVIRONMENT = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"}


class Held:
    """A child whose verb is about to start, in the hands of strace."""

    def __init__(self, command: list[str], strace: list[str], log: Path) -> None:
        self.log = log
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            text=True,
            env={**os.environ, **ENVIRONMENT},
        )
        self.told = self.process.stdout.readline()
        if not self.told:
            pytest.fail(f"it ended before its verb: {self.process.communicate()[1]}")
        thread = json.loads(self.told)["thread"]
        self.strace = subprocess.Popen(
            [*strace, "-o", str(log), "-p", str(thread)], stderr=pipe, text=True
        )
        attached = self.strace.stderr.readline()
        if "attached" not in attached:
            self.end()
            pytest.fail(f"strace did not get hold of it: {attached}")

    def finish(self) -> Traced:
        """Wait until it has ended."""
        stdout, stderr = self.process.communicate(timeout=SECONDS)
        self.strace.communicate(timeout=SECONDS)
        calls = parse(self.log.read_text(errors="replace"))
        return Traced(self.process.returncode, self.told + stdout, stderr, calls)

    def go(self) -> None:
        """Let the verb start."""
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def end(self) -> None:
        """End it, wherever it is."""
        for process in (self.process, self.strace):
            if process.poll() is None:
                process.kill()
            process.communicate()


class Tracer:
    """Runs children under strace."""

    def __init__(self, program: str, logs: Path) -> None:
        self._program = program
        self._logs = logs

    def _command(self, inject: str | None) -> list[str]:
        calls = ",".join((*CHANGING, *LOOKING, MARK))
        faults = ["-e", f"inject={inject}"] if inject else []
        return [self._program, "-y", "-s", "8", "-e", f"trace={calls}", *faults]

    def _log(self) -> Path:
        descriptor, name = tempfile.mkstemp(dir=self._logs)
        os.close(descriptor)
        return Path(name)

    def hold(self, command: list[str], *, inject: str | None = None) -> Held:
        """Start a child, and get hold of the thread that is to make its verb."""
        return Held(command, self._command(inject), self._log())

    def run(self, command: list[str], *, inject: str | None = None) -> Traced:
        """Run a child with a verb to its end, with a fault in the verb if one is given."""
        held = self.hold(command, inject=inject)
        try:
            held.go()
            return held.finish()
        finally:
            held.end()

    def run_all(self, command: list[str], inject: str) -> Traced:
        """Run a program with a fault from its first call on."""
        log = self._log()
        process = subprocess.run(
            [*self._command(inject), "-f", "-qq", "-o", str(log), *command],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            env={**os.environ, **ENVIRONMENT},
        )
        calls = parse(log.read_text(errors="replace"))
        return Traced(process.returncode, process.stdout, process.stderr, calls)


_LINE = re.compile(r"(?:\d+ +)?(\w+)\((.*)")


def parse(log: str) -> tuple[Call, ...]:
    """The calls in a log of strace."""
    counts: Counter[str] = Counter()
    marks = 0
    calls = []
    for line in log.splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        name, rest = match.groups()
        marks += name == MARK
        counts[name] += 1
        calls.append(Call(name, counts[name], f"{name}({rest}", in_verb=marks == 1))
    return tuple(calls)


@pytest.fixture
def strace(tmp_path: Path) -> Tracer:
    """strace; on CI it must be there."""
    program = shutil.which("strace")
    if program is None:
        message = "strace is not installed: no system call can be made to fail. Install it."
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    logs = tmp_path / "strace"
    logs.mkdir()
    return Tracer(program, logs)


class LaterClock:
    """An hour from now: every lease has run out and every delay is over."""

    def wall(self) -> float:
        return SYSTEM_CLOCK.wall() + HOUR

    def boot(self) -> float:
        return SYSTEM_CLOCK.boot() + HOUR


@pytest.fixture
def later() -> LaterClock:
    return LaterClock()


@pytest.fixture
def root(folder: Path) -> Path:
    """Where the queue of a test stands."""
    return folder / "queue"


@pytest.fixture
def fresh(root: Path) -> Callable[..., None]:
    """Make the queue anew, with its one task."""

    def make(**options: object) -> None:
        shutil.rmtree(root, ignore_errors=True)
        queue = FileQueue(root)
        queue.push({"id": "target"}, id="target", **options)
        queue.close()

    return make


class Stopped:
    """A child that stands still at a system call until told to go on."""

    def __init__(self, held: Held) -> None:
        self._held = held

    def go_on(self) -> dict[str, object]:
        """Let it run to its end; what it said."""
        self._held.process.send_signal(signal.SIGCONT)
        traced = self._held.finish()
        assert traced.returncode == 0, traced.stderr
        outcome: dict[str, object] = json.loads(traced.stdout.splitlines()[-1])
        return outcome


@pytest.fixture
def stop_at(
    strace: Tracer, child: Callable[..., list[str]]
) -> Callable[..., AbstractContextManager[Stopped]]:
    """Run a verb up to the call that matches, and stop there."""

    @contextmanager
    def run(
        root: Path, verb: str, call: str, text: str, prepare: Callable[[], object]
    ) -> Iterator[Stopped]:
        command = child("stop_and_go.py", root, verb)
        prepare()
        plain = strace.run(command)
        assert plain.returncode == 0, plain.stderr
        numbers = [c.ordinal for c in plain.verb(call) if text in c.text]
        assert len(numbers) == 1, "\n".join(c.text for c in plain.verb())
        prepare()
        held = strace.hold(command, inject=f"{call}:signal=SIGSTOP:when={numbers[0]}")
        try:
            held.go()
            _, status = os.waitpid(held.process.pid, os.WUNTRACED)
            assert os.WIFSTOPPED(status), "it ended instead"
            yield Stopped(held)
        finally:
            held.end()

    return run
