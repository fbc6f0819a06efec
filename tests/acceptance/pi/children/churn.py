"""churn.py FOLDER NAME: push, claim and ack until the disk is gone; say what was acknowledged.

Each line on standard output is a push that returned: that one is never to be lost.
"""

from __future__ import annotations

import itertools
import os
import sys

from dfq import DfqError
from dfq.engines.file import FileQueue

folder, name = sys.argv[1:]
queue = FileQueue(folder)


def say(ids: list[str]) -> None:
    os.write(1, "".join(f"{task_id}\n" for task_id in ids).encode())


def work() -> None:
    for number in itertools.count():
        one = f"{name}-{number}"
        queue.push({"id": one}, id=one, priority=number % 3)
        say([one])
        if number % 4 == 0:
            lot = [f"{one}-{k}" for k in range(20)]
            queue.push_many([queue.new_task({"id": task_id}, id=task_id) for task_id in lot])
            say(lot)
        for lease in queue.claim_many(6, name):
            if number % 5 == 0:
                queue.nack(lease, "not today", delay=0)
            else:
                queue.ack(lease, {"by": name})


try:
    work()
except (DfqError, OSError) as error:
    print(f"{type(error).__name__}: {error}", file=sys.stderr)
