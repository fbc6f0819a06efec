"""A queue object remembers what it saw of a task; what became of the task since then counts."""

from __future__ import annotations

import os

import pytest

from dfq import Filter


def test_a_lease_that_was_noted_twice_and_ended_stops_no_claim(folder, clock):
    folder.path.mkdir()
    (folder.path / "queue.json").write_text('{"layout": "flat"}')
    holder, worker = folder.open(), folder.open()
    # Long names: so many of them are forgotten at once that their memory is tidied.
    holder.push_many(holder.new_task(n, id=f"{n:04d}" + "k" * 100) for n in range(45))
    leases = holder.claim_many(100, lease_seconds=3_600)
    for _ in range(4):
        # What any nack or release does to its shard.
        os.utime(folder.path / "pending")
        clock.advance(0.01)
        assert worker.claim() is None
        assert worker.claim() is None
    for lease in leases:
        holder.ack(lease)
    clock.advance(10)
    assert worker.claim() is None
    holder.push_many(holder.new_task(n, id=f"new{n}") for n in range(200))
    clock.advance(31)
    found = [lease.task_id for lease in worker.claim_many(1_000)]
    assert sorted(found) == sorted(f"new{n}" for n in range(200))


DELAYED_NO_MORE = """
import sys
from dfq.engines.file import FileQueue
from dfq.testing import FakeClock

path, change, looks = sys.argv[1:]
clock = FakeClock()
pusher, worker = FileQueue(path, clock=clock), FileQueue(path, clock=clock)
pusher.push("x", id="x", delay=3_600)
for _ in range(int(looks)):
    assert worker.claim() is None
if change == "cancel and requeue":
    pusher.cancel("x")
    pusher.requeue("x")
else:
    assert pusher.purge("delayed") == 1
    pusher.push("x", id="x")
print(pusher.get("x").state, "watched" if worker.core.is_watched else "polling", flush=True)
for _ in range(3):
    clock.advance(31)
    lease = worker.claim()
    if lease is not None:
        print(lease.task_id, flush=True)
        break
"""

NO_INOTIFY = ["-e", "trace=inotify_init1", "-e", "inject=inotify_init1:error=EMFILE"]


@pytest.mark.parametrize("change", ["cancel and requeue", "purge and push"])
@pytest.mark.parametrize(
    ("strace", "looks"),
    [(None, 1), (None, 2), (NO_INOTIFY, 1), (NO_INOTIFY, 2), (NO_INOTIFY, 4)],
    ids=["one look", "inotify", "one look, no inotify", "no inotify", "many looks, no inotify"],
)
def test_a_delayed_task_that_was_made_ready_is_found_before_its_old_time(
    script, folder, change, strace, looks
):
    program = script(DELAYED_NO_MORE, folder.path, change, looks, strace=strace)
    state, mode = program.stdout.readline().split()
    assert (state, mode == "polling" or strace is None) == ("ready", True)
    assert program.stdout.readline() == "x\n"


CHANGES = {
    "project": ({"project": "a"}, {"project": "b"}, Filter(project="b")),
    "project given": ({}, {"project": "b"}, Filter(project="b")),
    "name": ({"name": "a"}, {"name": "b"}, Filter(names=("b",))),
    "name dropped": ({"name": "a"}, {}, Filter(names=("",))),
    "labels": ({"labels": ["a"]}, {"labels": ["a", "b"]}, Filter(labels=("b",))),
    "priority": ({"priority": "low"}, {"priority": "high"}, Filter(min_priority=1)),
}


@pytest.mark.parametrize(("before", "after", "wanted"), CHANGES.values(), ids=CHANGES.keys())
@pytest.mark.parametrize("looks", [1, 2])
def test_an_id_that_is_pushed_again_is_chosen_by_what_it_is_now(
    folder, clock, before, after, wanted, looks
):
    pusher, worker = folder.open(), folder.open()
    pusher.push(1, id="nightly", **before)
    for _ in range(looks):
        assert worker.claim(filter=wanted) is None
    pusher.ack(pusher.claim())
    assert pusher.purge("completed") == 1
    pusher.push(2, id="nightly", **after)
    found = []
    for _ in range(3):
        found += worker.claim_many(5, filter=wanted)
        clock.advance(31)
    assert found[0].task.payload == 2
