"""kill -9 at random moments, of processes that do a bit of everything to one queue.

DFQ_KILLS=20000 makes a longer run, DFQ_SEED another one.
"""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from dfq.engines.file import FileQueue

KILLS = int(os.environ.get("DFQ_KILLS", "300"))
SEED = os.environ.get("DFQ_SEED", "1")
#: This many work at a time; the oldest is killed next.
WORKERS = 2
HOUR = 3_600

pytestmark = [pytest.mark.crash, pytest.mark.timeout(180 + KILLS)]


def longest_wait(folder: Path, log: Path, child: Callable[..., list[str]]) -> float:
    """As long as a process needs to get to work here, so that the moments are spread over it."""
    begun = time.monotonic()
    command = child("mixed_work.py", folder, f"{SEED}-first", log)
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not (log.exists() and log.stat().st_size):
        threading.Event().wait(0.01)
    needed = time.monotonic() - begun
    end(process)
    return min(max(needed, 0.25), 1.5)


def kill_them_in_turn(folder: Path, log: Path, child: Callable[..., list[str]]) -> None:
    chance = random.Random(SEED)
    longest = longest_wait(folder, log, child)
    working: list[subprocess.Popen[str]] = []
    for number in range(KILLS + WORKERS):
        command = child("mixed_work.py", folder, f"{SEED}-{number}", log)
        working.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True))
        if len(working) <= WORKERS:
            continue
        # The moment is the point here: nothing to wait for tells when it has come.
        threading.Event().wait(chance.uniform(0.0, longest))
        end(working.pop(0))
    for process in working:
        end(process)


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    _, error = process.communicate(timeout=60)
    assert process.returncode == -9, f"it ended by itself: {error}"


def read(log: Path) -> tuple[set[str], Counter[str], dict[str, list[int]]]:
    """What was acknowledged: pushes, acks, and the fences of each task in their order."""
    pushed: set[str] = set()
    acked: Counter[str] = Counter()
    fences: dict[str, list[int]] = {}
    for line in log.read_text().splitlines():
        what, task_id, *fence = line.split()
        if what == "pushed":
            pushed.add(task_id)
        elif what == "acked":
            acked[task_id] += 1
        else:
            assert not acked[task_id], f"{task_id} was delivered again after its ack"
            fences.setdefault(task_id, []).append(int(fence[0]))
    return pushed, acked, fences


def age_torn_leases(folder: Path) -> None:
    """A torn lease is left alone for a moment, by the age of its file: let it pass."""
    for lease in folder.glob("pending/??/*/lease.json"):
        then = lease.stat().st_mtime - HOUR
        os.utime(lease, (then, then))


def drain(queue: FileQueue, acked: Counter[str], fences: dict[str, list[int]]) -> None:
    while leases := queue.claim_many(100, "afterwards"):
        for lease in leases:
            assert lease.task.payload == {"id": lease.task_id, "filler": "x" * 300}
            fences.setdefault(lease.task_id, []).append(lease.fence)
            queue.ack(lease)
            acked[lease.task_id] += 1


def test_whatever_moment_kills_a_process_nothing_is_lost_torn_or_done_twice(
    folder: Path, root: Path, child: Callable[..., list[str]], later
) -> None:
    log = folder / "log"
    kill_them_in_turn(root, log, child)
    pushed, acked, fences = read(log)
    assert len(pushed) > KILLS, "the children were killed before they did anything"
    assert sum(acked.values()) > KILLS / 4

    age_torn_leases(root)
    queue = FileQueue(root, clock=later)
    queue.sweep()
    lost = {task_id for task_id in pushed if queue.get(task_id) is None}
    assert not lost, f"{len(lost)} acknowledged pushes are lost: {sorted(lost)[:5]}"
    assert not list(root.glob("tmp/*")), "a sweep left something in tmp/"
    assert not list(root.glob("quarantine/*")), "something was torn, and set aside"

    drain(queue, acked, fences)
    for record in list(queue.list("failed")):
        queue.requeue(record.task.id)
    drain(queue, acked, fences)

    completed = {record.task.id for record in queue.list("completed")}
    assert pushed <= completed
    stats = queue.stats()
    assert (stats.ready, stats.delayed, stats.leased, stats.failed) == (0, 0, 0, 0)
    twice = {task_id: count for task_id, count in acked.items() if count > 1}
    assert not twice, f"completed more than once: {twice}"
    for task_id, seen in fences.items():
        assert all(a < b for a, b in itertools.pairwise(seen)), f"{task_id}: {seen}"
    assert not list(root.glob("quarantine/*"))
