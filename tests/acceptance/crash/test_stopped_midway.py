"""A process is stopped in the middle of a verb, others go on, then it wakes up.

The call at which it is stopped is its last before it stands still: a signal is taken when a
call returns. Each test holds one guard to account that only matters in such a moment.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from dfq import LeaseLost
from dfq.engines.file import FileQueue

pytestmark = [pytest.mark.crash]

SECONDS = 60


def test_a_claimer_that_slept_through_its_own_claim_finds_that_it_lost(
    root: Path, stop_at, fresh
) -> None:
    with stop_at(root, "claim", "openat", '"task.json"', fresh) as claimer:
        (lease,) = root.glob("pending/??/target/lease.json")
        assert lease.read_bytes() == b""
        os.utime(lease, (0, 0))
        other = FileQueue(root)
        taken = other.claim("quick")
        assert taken is not None and taken.fence > 1
        assert claimer.go_on() == {"done": None}
        other.ack(taken, "quick")
    assert other.get("target").result == "quick"


def test_a_claimer_that_finds_its_task_too_early_takes_back_no_lease_but_its_own(
    root: Path, stop_at, fresh, later
) -> None:
    def early() -> None:
        fresh(delay=600)

    with stop_at(root, "claim", "openat", '"task.json"', early) as claimer:
        (lease,) = root.glob("pending/??/target/lease.json")
        os.utime(lease, (0, 0))
        other = FileQueue(root, clock=later)
        taken = other.claim("quick")
        assert taken is not None
        assert claimer.go_on() == {"done": None}
        other.ack(taken, "quick")


def test_a_push_does_not_replace_a_directory_that_a_script_is_just_filling(
    root: Path, stop_at, fresh
) -> None:
    with stop_at(root, "push", "newfstatat", '"failed/', fresh) as pusher:
        shard = root / "pending" / hashlib.sha256(b"wanted").hexdigest()[:2]
        (shard / "wanted").mkdir(mode=0o700)
        mine = (shard / "wanted").stat().st_ino
        assert pusher.go_on() == {"error": "DuplicateTask"}
    assert (shard / "wanted").stat().st_ino == mine
    assert not list((shard / "wanted").iterdir())
    assert not list((root / "tmp").iterdir())


def test_a_process_that_stood_still_beyond_its_lease_is_refused_when_it_acks(
    root: Path, child: Callable[..., list[str]], fresh, later
) -> None:
    fresh()
    slow = subprocess.Popen(
        child("stop_and_go.py", root, "ack"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert "thread" in json.loads(slow.stdout.readline())
        slow.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, slow.pid, os.WSTOPPED)
        assert FileQueue(root).claim("too soon") is None, "a stopped process still holds its lease"
        quick = FileQueue(root, clock=later)
        taken = quick.claim("quick")
        assert taken is not None and taken.fence > 1
        slow.send_signal(signal.SIGCONT)
        output, _ = slow.communicate("go\n", timeout=SECONDS)
    finally:
        slow.kill()
        slow.communicate()
    assert json.loads(output) == {"error": "LeaseTaken"}
    quick.ack(taken, "quick")
    record = quick.get("target")
    assert record.result == "quick"
    assert [error.kind for error in record.task.errors] == ["crash"]


def test_an_old_lease_is_refused_once_another_took_over(root: Path, fresh, later) -> None:
    fresh()
    slow = FileQueue(root)
    lease = slow.claim("slow")
    quick = FileQueue(root, clock=later)
    taken = quick.claim("quick")
    assert taken.fence > lease.fence
    with pytest.raises(LeaseLost):
        slow.ack(lease, "slow")
    quick.ack(taken, "quick")
    assert quick.get("target").result == "quick"
