"""A folder under test, ways to damage it, and small disks to fill."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import orjson
import pytest

import dfq
from dfq import Finding, Policy
from dfq._core import shard_of
from dfq.engines.file import FileQueue
from dfq.testing import FakeClock
from tests.patience import patience

PACKAGE = Path(dfq.__file__).parents[1]
#: What damaged things get before they are set aside.
GRACE_SECONDS = 2.5
_ENOSPC = 28


def _missing(means: str) -> None:
    """In CI a missing means is a failure: a suite that skips there proves nothing."""
    if os.environ.get("CI", "").lower() in ("1", "true"):
        pytest.fail(f"CI must have {means}", pytrace=False)
    pytest.skip(f"needs {means}")


@pytest.fixture(autouse=True)
def _root_where_marked(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("needs_root") and os.geteuid() != 0:
        _missing("root")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


class Folder:
    """The queue's folder, seen from outside."""

    def __init__(self, path: Path, clock: FakeClock) -> None:
        self.path = path
        self.clock = clock
        self.flat = False
        self._handles: list[FileQueue] = []

    def open(self, **policy: object) -> FileQueue:
        """A handle on the queue, as another process would have it."""
        if "lease_seconds" in policy:
            policy.setdefault("heartbeat_seconds", policy["lease_seconds"] / 3)
        made = Policy(**policy) if policy else None
        queue = FileQueue(self.path, policy=made, clock=self.clock)
        self._handles.append(queue)
        return queue

    def task(self, task_id: str, area: str = "pending") -> Path:
        """Where the task's directory stands, or would."""
        below = self.path / area
        return below / task_id if self.flat else below / shard_of(task_id) / task_id

    def put(self, task_id: str, content: bytes | str, area: str = "pending") -> Path:
        """A task.json put there by somebody else's script."""
        directory = self.task(task_id, area)
        directory.mkdir(parents=True)
        data = content.encode() if isinstance(content, str) else content
        (directory / "task.json").write_bytes(data)
        return directory

    def set_aside(self) -> dict[str, str]:
        """What is in quarantine: where it was, and why it is there."""
        notes = [orjson.loads(p.read_bytes()) for p in self.path.glob("quarantine/*/reason.json")]
        return {note["path"]: note["reason"] for note in notes}

    def reports(self, queue: FileQueue, name: str) -> list[Finding]:
        """What doctor says about the thing called ``name``."""
        return [f for f in queue.doctor() if f.level != "ok" and name in f"{f.subject} {f.message}"]

    def rubbish(self) -> list[str]:
        return sorted(p.name for p in (self.path / "tmp").iterdir())

    def close(self) -> None:
        for queue in self._handles:
            queue.close()


@pytest.fixture
def folder(tmp_path: Path, clock: FakeClock) -> Iterator[Folder]:
    made = Folder(tmp_path / "queue", clock)
    yield made
    made.close()


@pytest.fixture
def neighbours(folder: Folder) -> list[str]:
    """Three tasks that must not notice anything."""
    folder.open().push_many([folder.open().new_task(n, id=f"n{n}") for n in range(3)])
    return ["n0", "n1", "n2"]


@pytest.fixture
def work_off(clock: FakeClock) -> Callable[[FileQueue], list[str]]:
    """Claim and ack all there is, with a pause in which damaged things are looked at again."""

    def work_off(queue: FileQueue) -> list[str]:
        done = []
        for _ in range(2):
            for _ in range(1_000):
                lease = queue.claim("w")
                if lease is None:
                    break
                queue.ack(lease)
                done.append(lease.task_id)
            clock.advance(GRACE_SECONDS)
        return sorted(done)

    return work_off


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("DFQ_")}
    return {**clean, "PYTHONPATH": str(PACKAGE), "HOME": str(tmp_path)}


@pytest.fixture
def cli(tmp_path: Path, environment: dict[str, str]) -> Callable[..., subprocess.CompletedProcess]:
    """Run ``python -m dfq`` on words that may be bytes."""

    def run(*words: str | bytes, stdin: bytes = b"") -> subprocess.CompletedProcess:
        return subprocess.run(
            [sys.executable, "-m", "dfq", *words],
            input=stdin,
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            check=False,
            timeout=patience(60),
        )

    return run


@pytest.fixture
def script(environment: dict[str, str]) -> Iterator[Callable[..., subprocess.Popen]]:
    """Start a Python program of its own, talking by lines; under strace or another command."""
    started: list[subprocess.Popen] = []

    def start(
        source: str,
        *arguments: object,
        strace: list[str] | None = None,
        under: Sequence[str] = (),
    ) -> subprocess.Popen:
        tracer = list(under)
        if strace is not None:
            if shutil.which("strace") is None:
                _missing("strace")
            tracer = ["strace", "-f", "-qq", *strace]
            if "-o" not in strace:
                tracer += ["-o", "/dev/null"]
        process = subprocess.Popen(
            [*tracer, sys.executable, "-c", source, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.stdin.close()
        process.stdout.close()
        if process.poll() is None:
            process.kill()
        process.wait(10)


@pytest.fixture
def held_to_permissions() -> list[str]:
    """What to run a script under so that file modes bind it: root has to give up its right."""
    if os.geteuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        _missing("setpriv")
    return ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"]


@pytest.fixture
def asleep() -> Callable[[int], None]:
    """Wait until a thread sleeps in the kernel for something to happen to a file."""

    def asleep(thread: int) -> None:
        pause = threading.Event()
        for _ in range(3_000):
            if "poll" in Path(f"/proc/{thread}/wchan").read_text():
                return
            pause.wait(0.01)
        raise AssertionError("the thread does not come to wait")

    return asleep


class Disk:
    """A small disk of our own, to be filled."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fillers = 0

    def fill_bytes(self) -> None:
        """Not one more byte fits."""
        self._fillers += 1
        with (self.path / f"filler-{self._fillers}").open("wb", buffering=0) as file:
            for size in (65_536, 4_096, 1):
                self._write_until_full(file, size)

    def _write_until_full(self, file: object, size: int) -> None:
        for _ in range(10_000):
            try:
                file.write(b"x" * size)
            except OSError as error:
                assert error.errno == _ENOSPC
                return
        raise AssertionError("the disk does not fill")

    def fill_names(self) -> None:
        """Not one more file can be made."""
        (self.path / "fillers").mkdir()
        for number in range(100_000):
            try:
                (self.path / "fillers" / str(number)).touch()
            except OSError as error:
                assert error.errno == _ENOSPC
                return
        raise AssertionError("the disk does not fill")

    def free(self) -> None:
        """There is space again."""
        for filler in self.path.glob("filler-*"):
            filler.unlink()
        if (self.path / "fillers").exists():
            shutil.rmtree(self.path / "fillers")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """A tmpfs of 1 MB and 700 files."""
    path = tmp_path / "disk"
    path.mkdir()
    options = "size=1m,nr_inodes=700"
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "dfq-test", path], capture_output=True, check=False
    )
    if made.returncode != 0:
        _missing("the right to mount a tmpfs")
    yield Disk(path)
    # Lazily: a process keeps its handle on a queue's lock file until it ends.
    subprocess.run(["umount", "-l", path], check=True)
