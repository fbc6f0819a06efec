"""A card that takes 20 ms for every sync: few of them are asked for, and nobody else waits."""

from __future__ import annotations

import json

#: What a sync takes longer, in microseconds.
SLOW = "fsync,fdatasync,syncfs:delay_exit=20000"

PUSH_MANY = """
import os, sys
from dfq.engines.file import FileQueue

queue = FileQueue(sys.argv[1])
os.getpgid(0)
queue.push_many([queue.new_task({"n": n}) for n in range(1_000)])
os.getpgid(0)
print(queue.stats().ready)
"""


def test_a_thousand_durable_pushes_are_a_few_group_commits(tmp_path, strace):
    """Even the very first, which makes the queue: its folders are the other syncs."""
    traced, printed = strace(PUSH_MANY, tmp_path / "queue", inject=SLOW)
    assert printed == "1000\n"
    whole = [name for name, _ in traced.calls if name == "syncfs"]
    assert len(whole) == 2, "one before and one after the renames"
    assert traced.syncs <= 12, [call for call, _ in traced.calls]


#: One handler pushes without end, and so waits for the card all the time. The other waits until it
#: has seen its own lease renewed several times; only then both end.
BEATS = """
import json, sys, threading
import dfq
from dfq.policy import Policy
from dfq.worker import WorkerOptions, functions, run

url = sys.argv[1]
policy = Policy(lease_seconds=3, heartbeat_seconds=0.2)
queue = dfq.open(url, policy=policy)
call = {"args": [], "kwargs": {}}
queue.push(call, id="watcher", name="watch")
queue.push(call, id="pusher", name="push")
seen, pushed, enough = set(), [], threading.Event()
begun = threading.Barrier(2, timeout=60)


@dfq.task(name="push")
def push():
    begun.wait()
    while not enough.is_set():
        queue.push({"n": len(pushed)}, name="later")
        queue.push_many([queue.new_task({"n": n}, name="later") for n in range(20)])
        pushed.append(21)


@dfq.task(name="watch")
def watch():
    begun.wait()
    try:
        for _ in range(100_000):
            seen.update((id, queue.get(id).lease.heartbeat_at) for id in ("watcher", "pusher"))
            if len(seen) >= 12 and len(pushed) >= 3:
                return
            threading.Event().wait(0.01)
    finally:
        enough.set()


code = run(queue, functions(push, watch), WorkerOptions(concurrency=2, max_tasks=2))
records = [queue.get(id) for id in ("watcher", "pusher")]
print(json.dumps({
    "code": code,
    "beats": len(seen),
    "attempts": [record.lease.attempt for record in records],
    "states": [record.state for record in records],
    "pushed": sum(pushed),
    "ready": queue.stats().ready,
}))
"""


def test_while_one_handler_waits_for_the_card_all_leases_are_renewed(tmp_path, strace):
    _, printed = strace(BEATS, tmp_path / "queue", inject=SLOW)
    told = json.loads(printed.splitlines()[-1])
    assert told["beats"] >= 12
    assert told["attempts"] == [1, 1]
    assert (told["code"], told["states"]) == (0, ["completed", "completed"])
    assert told["ready"] == told["pushed"] >= 63
