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
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
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
    """One system call of the main thread."""

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
        return [c for c in self.calls if c.in_verb and (not names or c.name in names)]


class Tracer:
    """Runs children under strace."""

    def __init__(self, program: str, logs: Path) -> None:
        self._program = program
        self._logs = logs

    def command(self, log: Path, inject: str | None) -> list[str]:
        calls = ",".join((*CHANGING, *LOOKING, MARK))
        options = ["-f", "-qq", "-y", "-s", "8", "-o", str(log), "-e", f"trace={calls}"]
        if inject is None or "signal=" not in inject:
            # Faster; but with it strace does not deliver the signals it is to inject.
            options.append("--seccomp-bpf")
        return [self._program, *options, *(["-e", f"inject={inject}"] if inject else [])]

    def run(self, command: list[str], *, inject: str | None = None) -> Traced:
        """Run to the end, with a fault if one is given."""
        descriptor, name = tempfile.mkstemp(dir=self._logs)
        os.close(descriptor)
        process = subprocess.run(
            [*self.command(Path(name), inject), *command],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"},
        )
        calls = parse(Path(name).read_text(errors="replace"))
        return Traced(process.returncode, process.stdout, process.stderr, calls)


_LINE = re.compile(r"(\d+) +(\w+)\((.*)")


def parse(log: str) -> tuple[Call, ...]:
    """The main thread's calls in a log of strace."""
    main: str | None = None
    counts: Counter[str] = Counter()
    marks = 0
    calls = []
    for line in log.splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        process, name, rest = match.groups()
        main = main or process
        if process != main:
            continue
        if name == MARK:
            marks += 1
            continue
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

    def __init__(self, strace: subprocess.Popen[str], pid: int) -> None:
        self._strace = strace
        self._pid = pid

    def go_on(self) -> dict[str, object]:
        """Let it run to its end; what it said."""
        os.kill(self._pid, signal.SIGCONT)
        output, error = self._strace.communicate(timeout=SECONDS)
        assert self._strace.returncode == 0, error
        outcome: dict[str, object] = json.loads(output)
        return outcome


def stopped_at(log: Path, process: subprocess.Popen[str]) -> tuple[int, str] | None:
    """The process that stands still, and its last call; None: it does not."""
    pause = threading.Event()
    for _ in range(SECONDS * 20):
        over = process.poll() is not None
        lines = log.read_text().splitlines() if log.exists() else []
        if any("stopped by SIGSTOP" in line for line in lines):
            pid = lines[0].split()[0]
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
            if state in ("T", "t"):
                calls = [c for line in lines if (c := _LINE.match(line)) and c[1] == pid]
                return int(pid), calls[-1][0]
        if over:
            return None
        # Nothing tells when another process stops: look, a bounded time.
        pause.wait(0.01)
    return None


def end(strace: subprocess.Popen[str], log: Path) -> None:
    """End strace, and before it the process that it watches."""
    if strace.poll() is None:
        if log.exists() and (lines := log.read_text().splitlines()):
            with suppress(ProcessLookupError):
                os.kill(int(lines[0].split()[0]), signal.SIGKILL)
        strace.kill()
    strace.communicate()


@pytest.fixture
def stop_at(
    strace: Tracer, child: Callable[..., list[str]], tmp_path: Path
) -> Callable[..., AbstractContextManager[Stopped]]:
    """Run a verb up to the call that matches, and stop there."""

    def start(
        command: list[str], call: str, text: str, prepare: Callable[[], object]
    ) -> subprocess.Popen[str]:
        plain = strace.run(command)
        assert plain.returncode == 0, plain.stderr
        numbers = [c.ordinal for c in plain.verb(call) if text in c.text]
        assert len(numbers) == 1, "\n".join(c.text for c in plain.verb())
        prepare()
        inject = f"{call}:signal=SIGSTOP:when={numbers[0]}"
        return subprocess.Popen(
            [*strace.command(tmp_path / "stopped", inject), *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"},
        )

    @contextmanager
    def run(
        root: Path, verb: str, call: str, text: str, prepare: Callable[[], object]
    ) -> Iterator[Stopped]:
        command = child("stop_and_go.py", root, verb)
        # The number of a call may differ from one run to the next, as threads come and go:
        # then once more.
        for _ in range(10):
            prepare()
            (tmp_path / "stopped").unlink(missing_ok=True)
            process = None
            try:
                process = start(command, call, text, prepare)
                stopped = stopped_at(tmp_path / "stopped", process)
                if stopped and call in stopped[1] and text in stopped[1]:
                    yield Stopped(process, stopped[0])
                    return
            finally:
                if process is not None:
                    end(process, tmp_path / "stopped")
        pytest.fail(f"{verb} could not be stopped at {call} {text}")

    return run
