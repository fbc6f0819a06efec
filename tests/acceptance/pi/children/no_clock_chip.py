"""no_clock_chip.py FOLDER ROLE: a process on a machine that starts in 1970, until a file called
``jump`` beside the queue says that the time was set.

``worker`` works on the task ``held`` until there is a file called ``done``. ``other`` is another
process of the same machine: it answers each line on standard input with what it finds to do.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

from dfq.ambient import SYSTEM_CLOCK, SystemClock

folder, role = Path(sys.argv[1]), sys.argv[2]
beside = folder.parent
right = SystemClock.wall
started = SYSTEM_CLOCK.boot()


def wall(clock: SystemClock) -> float:
    """The time of day of this machine."""
    if (beside / "jump").exists():
        return right()
    return 30.0 + clock.boot() - started


SystemClock.wall = wall

import dfq  # noqa: E402
from dfq.policy import Policy  # noqa: E402
from dfq.worker import WorkerOptions, functions, run  # noqa: E402

queue = dfq.open(folder, policy=Policy(lease_seconds=3, heartbeat_seconds=0.3))


def hold(payload: object) -> str:
    print(json.dumps({"began": SYSTEM_CLOCK.wall()}), flush=True)
    for _ in range(60_000):
        if (beside / "done").exists():
            return "held on"
        threading.Event().wait(0.01)
    raise TimeoutError("nobody says that it is done")


if role == "worker":
    queue.push(None, id="held")
    queue.push(None, id="early", not_before=SYSTEM_CLOCK.wall() + 3_600)
    print(json.dumps({"code": run(queue, functions(hold), WorkerOptions(once=True))}))
else:
    for _line in sys.stdin:
        report = queue.sweep()
        found = queue.claim_many(10, "other")
        for lease in found:
            queue.ack(lease)
        held = queue.get("held")
        assert held is not None
        answer = {
            "wall": SYSTEM_CLOCK.wall(),
            "claimed": sorted(lease.task_id for lease in found),
            "expired": report.expired_leases,
            "archived": report.archived,
            "states": {record.task.id: record.state for record in queue.list()},
            "heartbeat_at": held.lease.heartbeat_at if held.lease else None,
            "finished": [held.state, held.result, held.finished_at],
        }
        print(json.dumps(answer), flush=True)
