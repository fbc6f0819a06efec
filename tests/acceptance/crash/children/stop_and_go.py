"""Make one verb, slowly: a test stops this process at one of its system calls.

    stop_and_go.py FOLDER VERB

Standard output, in JSON: a line with the thread that waits for a line on standard input, and
one with what came of it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from traced import CLOCK, between_marks, say, stay_on_one_core

from dfq import DfqError, Policy
from dfq.engines.file import FileQueue
from dfq.lease import Lease
from dfq.testing import SeededChance


class Slow:
    def __init__(self, folder: str, verb: str) -> None:
        self.folder = folder
        policy = Policy(finished="archive", finished_after_seconds=0)
        self.queue = FileQueue(folder, chance=SeededChance(3), clock=CLOCK, policy=policy)
        self.queue.get("target")
        self.lease: Lease | None = None
        if verb in ("ack", "nack"):
            self.lease = self.queue.claim("slow", lease_seconds=600)
        self.verb: Callable[[], object] = getattr(self, verb)

    def claim(self) -> object:
        claimed = self.queue.claim("slow")
        return claimed and claimed.fence

    def ack(self) -> object:
        assert self.lease is not None
        self.queue.ack(self.lease, "slow")
        return self.lease.fence

    def nack(self) -> object:
        assert self.lease is not None
        return self.queue.nack(self.lease, "slow", delay=0).name

    def push(self) -> object:
        return self.queue.push({"by": "slow"}, id="wanted").id

    def push_linked(self) -> object:
        return self.queue.push(1, id="a", depends_on=["b"]).id

    def requeue(self) -> object:
        return self.queue.requeue("target")

    def cancel(self) -> object:
        return self.queue.cancel("target", "slow")

    def purge(self) -> object:
        return self.queue.core.remove("pending", "target", True)

    def archive(self) -> object:
        return self.queue.sweep().archived

    def open(self) -> object:
        return FileQueue(Path(self.folder, "new"), clock=CLOCK).push(1, id="first").id


def main() -> None:
    stay_on_one_core()
    slow = Slow(*sys.argv[1:])

    def outcome() -> dict[str, object]:
        try:
            return {"done": slow.verb()}
        except DfqError as error:
            return {"error": type(error).__name__}

    say(between_marks(outcome, {}))


if __name__ == "__main__":
    main()
