"""Make one verb of a queue, between two marks, and say what came of it.

    one_verb.py FOLDER VERB

Every line on standard output is JSON: first what was prepared and the thread that waits for a
line on standard input, then one outcome for the verb, and, if that was an error, how the task
stands and the outcome of a second try.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable

from traced import CLOCK, between_marks, say, stay_on_one_core

from dfq import DfqError, Policy
from dfq.engines.file import FileQueue
from dfq.lease import Lease
from dfq.testing import SeededChance

FILLER = "x" * 500
RESULT = {"by": "the script"}


def payload(task_id: str) -> dict[str, str]:
    return {"id": task_id, "filler": FILLER}


def warm_up(path: str) -> None:
    """Let every import and every lazy thing happen before the first mark."""
    queue = FileQueue(path, chance=SeededChance(1), clock=CLOCK)
    queue.push(payload("warm"), id="warm", max_attempts=1)
    lease = queue.claim("warm")
    assert lease is not None
    queue.nack(lease, "boom", delay=0)
    queue.requeue("warm")
    lease = queue.claim("warm")
    assert lease is not None
    queue.ack(queue.heartbeat(lease), RESULT)
    queue.push_many([queue.new_task(payload(f"warm-{n}"), id=f"warm-{n}") for n in range(5)])
    queue.get("warm")
    queue.close()


class Script:
    def __init__(self, folder: str, verb: str) -> None:
        self.folder = folder
        self.queue = FileQueue(folder, chance=SeededChance(1), clock=CLOCK)
        self.verb: Callable[[], object] = getattr(self, verb)
        self.lease: Lease | None = None
        if verb in ("ack", "nack", "nack_last", "heartbeat", "bury", "save_state"):
            self.lease = self.queue.claim("script")
            assert self.lease is not None and self.lease.task_id == "target"
        elif verb != "open":
            self.queue.get("target")  # opens the folder; nothing is scanned yet

    def open(self) -> object:
        """The first use of a folder that is not there yet."""
        queue = FileQueue(os.path.join(self.folder, "new"), chance=SeededChance(2), clock=CLOCK)
        return queue.push(payload("first"), id="first").id

    def push(self) -> object:
        return self.queue.push(payload("pushed"), id="pushed").id

    def push_many(self) -> object:
        ids = [f"many-{n}" for n in range(5)]
        self.queue.push_many([self.queue.new_task(payload(i), id=i) for i in ids])
        return ids

    def claim(self) -> object:
        lease = self.queue.claim("script")
        return lease and [lease.task_id, lease.fence]

    claim_too_early = claim

    def ack(self) -> object:
        assert self.lease is not None
        self.queue.ack(self.lease, RESULT)
        return None

    def nack(self) -> object:
        assert self.lease is not None
        return self.queue.nack(self.lease, "boom", delay=0).name

    nack_last = nack

    def heartbeat(self) -> object:
        assert self.lease is not None
        return self.queue.heartbeat(self.lease).fence

    def bury(self) -> object:
        assert self.lease is not None
        self.queue.bury(self.lease, "boom")
        return None

    def cancel(self) -> object:
        self.queue.cancel("target", "boom")
        return None

    def requeue(self) -> object:
        self.queue.requeue("target")
        return None

    def save_state(self) -> object:
        assert self.lease is not None
        return self.queue.save_state(self.lease, RESULT)

    def pause(self) -> object:
        return self.queue.pause("for a test")

    def archive(self) -> object:
        policy = Policy(finished="archive", finished_after_seconds=0)
        queue = FileQueue(self.folder, policy=policy, chance=SeededChance(2), clock=CLOCK)
        return queue.sweep().archived

    def outcome(self) -> dict[str, object]:
        try:
            return {"ok": True, "value": self.verb()}
        except DfqError as error:
            return {"ok": False, "error": type(error).__name__, "message": str(error)}

    def stands(self) -> dict[str, str]:
        ids = ("target", "pushed", "first", *(f"many-{n}" for n in range(5)))
        records = {task_id: self.queue.get(task_id) for task_id in ids}
        return {task_id: record.state for task_id, record in records.items() if record}


def main() -> int:
    folder, verb = sys.argv[1:]
    stay_on_one_core()
    warm_up(folder + ".warm")
    script = Script(folder, verb)
    fence = script.lease.fence if script.lease else 0
    first = between_marks(script.outcome, {"fence": fence})
    say(first)
    if not first["ok"]:
        say(script.stands())
        say(script.outcome())
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Exception:
        say({"crash": traceback.format_exc()})
        sys.exit(1)
