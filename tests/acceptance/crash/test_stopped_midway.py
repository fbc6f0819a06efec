"""A process is stopped in the middle of a verb, others go on, then it wakes up.

The call at which it is stopped is its last before it stands still: a signal is taken when a
call returns. Each test holds one guard to account that only matters in such a moment.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dfq import LeaseLost
from dfq.ambient import SYSTEM_CLOCK
from dfq.engines.file import FileQueue

pytestmark = [pytest.mark.crash]

HOUR = 3_600
SECONDS = 60


class LaterClock:
    """An hour from now: every lease has run out."""

    def wall(self) -> float:
        return SYSTEM_CLOCK.wall() + HOUR

    def boot(self) -> float:
        return SYSTEM_CLOCK.boot() + HOUR


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
        return json.loads(output)


def wait_for(condition: Callable[[], object]) -> object:
    """Nothing tells when another process stops or waits for a lock: look, a bounded time."""
    pause = threading.Event()
    for _ in range(SECONDS * 100):
        if answer := condition():
            return answer
        pause.wait(0.01)
    pytest.fail("it did not happen")


def is_stopped(pid: int) -> bool:
    # Between the group-stop and the tracer's look it is T or t; only a stop lasts.
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in ("T", "t")


@pytest.fixture
def stop_at(strace, child, tmp_path: Path) -> Callable[..., Iterator[Stopped]]:
    """Run a verb up to the call that matches, and stop there."""

    @contextmanager
    def run(root: Path, verb: str, call: str, text: str, prepare: Callable[[], object]):
        command = child("stop_and_go.py", root, verb)
        prepare()
        plain = strace.run(command)
        assert plain.returncode == 0, plain.stderr
        (number,) = [c.ordinal for c in plain.verb(call) if text in c.text]
        prepare()
        log = tmp_path / "stopped"
        process = subprocess.Popen(
            [*strace.command(log, f"{call}:signal=SIGSTOP:when={number}"), *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        )
        pid: int | None = None
        try:

            def stopped() -> int | None:
                lines = log.read_text().splitlines() if log.exists() else []
                if not any("stopped by SIGSTOP" in line for line in lines):
                    return None
                return int(lines[0].split()[0])

            pid = wait_for(stopped)
            wait_for(lambda: is_stopped(pid))
            yield Stopped(process, pid)
        finally:
            if process.poll() is None:
                if pid is not None:
                    os.kill(pid, signal.SIGKILL)
                process.kill()
            process.communicate()

    return run


@pytest.fixture
def fresh(folder: Path) -> Callable[[], None]:
    """Make the queue anew, with its one task."""

    def make() -> None:
        shutil.rmtree(folder / "queue", ignore_errors=True)
        queue = FileQueue(folder / "queue")
        queue.push({"id": "target"}, id="target")
        queue.close()

    return make


def test_a_claimer_that_slept_through_its_own_claim_finds_that_it_lost(
    folder: Path, stop_at, fresh
) -> None:
    root = folder / "queue"
    with stop_at(root, "claim", "openat", '"task.json"', fresh) as claimer:
        (lease,) = root.glob("pending/??/target/lease.json")
        assert lease.read_bytes() == b""
        os.utime(lease, (0, 0))
        other = FileQueue(root)
        taken = other.claim("quick")
        assert taken is not None and taken.fence > 1
        assert claimer.go_on() == {"claimed": None}
        other.ack(taken, "quick")
    assert other.get("target").result == "quick"


def test_an_ack_that_was_stopped_after_its_check_keeps_others_from_taking_over(
    folder: Path, stop_at, fresh
) -> None:
    root = folder / "queue"
    with stop_at(root, "ack", "renameat", '"result.json"', fresh) as acker:
        queue = FileQueue(root, clock=LaterClock())
        taken: list[object] = []
        taker = threading.Thread(target=lambda: taken.append(queue.claim("taker")))
        taker.start()
        # The lock is waited for with growing pauses; its number of tries is not told. A
        # take-over that does not wait is done long before this.
        taker.join(timeout=1.0)
        assert acker.go_on() == {"acked": 1}
        taker.join(timeout=SECONDS)
        assert taken == [None], "one task, two holders"
    assert queue.get("target").result == "slow"


def test_a_push_does_not_replace_a_directory_that_a_script_is_just_filling(
    folder: Path, stop_at, fresh
) -> None:
    root = folder / "queue"
    with stop_at(root, "push", "newfstatat", '"failed/', fresh) as pusher:
        shard = root / "pending" / hashlib.sha256(b"wanted").hexdigest()[:2]
        (shard / "wanted").mkdir(mode=0o700)
        mine = (shard / "wanted").stat().st_ino
        assert pusher.go_on() == {"error": "DuplicateTask"}
    assert (shard / "wanted").stat().st_ino == mine
    assert not list((shard / "wanted").iterdir())
    assert not list((root / "tmp").iterdir())


def test_a_lease_of_a_stopped_worker_is_refused_once_another_took_over(folder: Path, fresh) -> None:
    fresh()
    slow = FileQueue(folder / "queue")
    lease = slow.claim("slow")
    quick = FileQueue(folder / "queue", clock=LaterClock())
    taken = quick.claim("quick")
    assert taken.fence > lease.fence
    with pytest.raises(LeaseLost):
        slow.ack(lease, "slow")
    quick.ack(taken, "quick")
    assert quick.get("target").result == "quick"
