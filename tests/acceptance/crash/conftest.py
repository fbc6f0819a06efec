"""What the crash tests share: a fast folder, child processes, and strace."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dfq.engines.file import FileQueue

CHILDREN = Path(__file__).parent / "children"
MEMORY_DISK = Path("/dev/shm")
#: The calls by which a queue changes its folder, or waits until it is safe.
CHANGING = (
    *("fsync", "syncfs", "write", "openat", "openat2", "renameat", "renameat2"),
    *("mkdir", "mkdirat", "unlinkat", "fcntl", "utimensat"),
)
LOOKING = ("newfstatat",)
#: A child makes this call, and no other reason for it exists, where the verb starts and ends.
MARK = "getpgid"
SECONDS = 60
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
