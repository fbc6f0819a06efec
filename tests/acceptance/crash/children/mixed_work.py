"""Do a bit of everything to a queue until killed, and log each thing once it is done.

    mixed_work.py FOLDER SEED LOG

A line of the log is appended by one write, so that it is whole or not there.
"""

from __future__ import annotations

import itertools
import os
import random
import sys
from contextlib import suppress

from dfq import TaskNotFound, WrongState
from dfq.engines.file import FileQueue
from dfq.lease import Lease


class Work:
    def __init__(self, folder: str, seed: str, log: str) -> None:
        self._queue = FileQueue(folder)
        self._random = random.Random(seed)
        self._log = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        # The pid makes ids of two children different; the seed says who is who in the log.
        self._ids = (f"{seed}-{os.getpid()}-{number}" for number in itertools.count())

    def log(self, *words: object) -> None:
        os.write(self._log, (" ".join(map(str, words)) + "\n").encode())

    def forever(self) -> None:
        verbs = [self.push, self.push_many, self.work, self.work, self.work, self.requeue]
        weights = [4, 1, 4, 4, 4, 1]
        while True:
            self._random.choices(verbs, weights)[0]()

    def push(self) -> None:
        task_id = next(self._ids)
        self._queue.push({"id": task_id, "filler": "x" * 300}, id=task_id)
        self.log("pushed", task_id)

    def push_many(self) -> None:
        ids = [next(self._ids) for _ in range(5)]
        self._queue.push_many(
            [self._queue.new_task({"id": i, "filler": "x" * 300}, id=i) for i in ids]
        )
        for task_id in ids:
            self.log("pushed", task_id)

    def work(self) -> None:
        for lease in self._queue.claim_many(self._random.choice([1, 1, 3])):
            assert lease.task.payload["id"] == lease.task_id
            self.log("claimed", lease.task_id, lease.fence)
            self.settle(lease)

    def settle(self, lease: Lease) -> None:
        what = self._random.random()
        if what < 0.5:
            self._queue.ack(lease, self._random.choice([None, {"fence": lease.fence}]))
            self.log("acked", lease.task_id, lease.fence)
        elif what < 0.75:
            self._queue.nack(lease, "it did not work", delay=self._random.choice([0, 0.01]))
        elif what < 0.85:
            self._queue.release(self._queue.heartbeat(lease))
        elif what < 0.95:
            self._queue.bury(lease, "it never works")
        else:
            self._queue.save_state(lease, {"fence": lease.fence})
            self._queue.nack(lease, "later", delay=0)

    def requeue(self) -> None:
        for record in list(self._queue.list("failed", limit=3)):
            # The other one may be quicker.
            with suppress(TaskNotFound, WrongState):
                self._queue.requeue(record.task.id)


if __name__ == "__main__":
    Work(*sys.argv[1:]).forever()
