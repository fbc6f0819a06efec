"""take_stock.py FOLDER: what stands in a queue after a power cut, and whether it works on.

On standard input are the ids of pushes that were acknowledged; on standard output is one line of
JSON. A process of its own, as it keeps a hand on the folder until it ends.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from dfq.ambient import SYSTEM_CLOCK
from dfq.engines.file import FileQueue

HOUR = 3_600


class LaterClock:
    """An hour from now: every lease has run out and every delay is over."""

    def wall(self) -> float:
        return SYSTEM_CLOCK.wall() + HOUR

    def boot(self) -> float:
        return SYSTEM_CLOCK.boot() + HOUR


folder = Path(sys.argv[1])
acknowledged = sys.stdin.read().split()
# A torn lease is left alone for a moment, by the age of its file: let it pass.
for lease_file in folder.glob("pending/??/*/lease.json"):
    then = lease_file.stat().st_mtime - HOUR
    os.utime(lease_file, (then, then))

queue = FileQueue(folder, clock=LaterClock())
queue.sweep()
records = {task_id: queue.get(task_id) for task_id in acknowledged}
lost = [task_id for task_id, record in records.items() if record is None]
torn = [
    task_id
    for task_id, record in records.items()
    if record is not None and record.task.payload != {"id": task_id}
]
worked_off = 0
while leases := queue.claim_many(100, "afterwards"):
    for lease in leases:
        queue.ack(lease, "afterwards")
        worked_off += 1
for record in list(queue.list("failed")):
    queue.requeue(record.task.id)
while leases := queue.claim_many(100, "afterwards"):
    for lease in leases:
        queue.ack(lease, "afterwards")
stats = queue.stats()
done = {record.task.id for record in queue.list("completed")}
print(
    json.dumps(
        {
            "lost": lost,
            "torn": torn,
            "not_done": sorted(set(acknowledged) - done),
            "pending": stats.pending,
            "quarantined": stats.quarantined,
            "worked_off": worked_off,
        }
    )
)
