"""Look at queue folders after faults, as the next process would; say what is wrong.

Standard input: a JSON list of cases; standard output: a JSON list of complaints for each.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from dfq.ambient import SYSTEM_CLOCK
from dfq.engines.file import FileQueue

HOUR = 3_600
FILLER = "x" * 500
MANY = [f"many-{n}" for n in range(5)]
#: Which tasks must be there when the verb was told to be done.
PUSHED = {"push": ["pushed"], "push_many": MANY, "open": ["first"]}


class LaterClock:
    """An hour from now: leases have run out, delays are over."""

    def wall(self) -> float:
        return SYSTEM_CLOCK.wall() + HOUR

    def boot(self) -> float:
        return SYSTEM_CLOCK.boot() + HOUR


def age_leases(root: Path) -> None:
    """A torn lease is judged by the age of its file: let that hour pass too."""
    for lease in root.glob("pending/*/*/lease.json"):
        then = lease.stat().st_mtime - HOUR
        os.utime(lease, (then, then))


def torn_tasks(root: Path) -> list[str]:
    wrong = []
    for area in ("pending", "completed", "failed"):
        for directory in root.glob(f"{area}/??/*"):
            try:
                json.loads((directory / "task.json").read_bytes())
            except (OSError, ValueError) as error:
                wrong.append(f"torn: {directory.relative_to(root)}/task.json ({error})")
    return wrong


class Check:
    def __init__(self, case: dict) -> None:
        self.case = case
        self.root = Path(case["root"])
        self.verb = case["verb"]
        if self.verb == "open":
            self.root /= "new"
        self.fence: int = case["fence"]
        self.done: bool = case["done"]
        self.wrong: list[str] = []

    def expect(self, truth: object, complaint: str) -> None:
        if not truth:
            self.wrong.append(complaint)

    def run(self) -> list[str]:
        if self.verb == "open" and not self.done and not self.root.exists():
            return []
        self.wrong += torn_tasks(self.root)
        age_leases(self.root)
        queue = FileQueue(self.root, clock=LaterClock())
        self.nothing_is_lost(queue)
        self.bystanders_are_untouched()
        self.the_verb_took_effect(queue)
        self.work_goes_on(queue)
        self.nothing_is_left_behind(queue)
        queue.close()
        return self.wrong

    def nothing_is_lost(self, queue: FileQueue) -> None:
        expected = [] if self.verb == "open" else ["bystander", "done", "sad", "target"]
        if self.done:
            expected += PUSHED.get(self.verb, [])
        for task_id in expected:
            self.expect(queue.get(task_id), f"lost: {task_id}")

    def bystanders_are_untouched(self) -> None:
        for path, content in self.case["bystanders"].items():
            now = (self.root / path).read_text() if (self.root / path).exists() else None
            self.expect(now == content, f"changed: {path}")

    def the_verb_took_effect(self, queue: FileQueue) -> None:
        if not self.done:
            return
        target = queue.get("target")
        if self.verb == "ack":
            self.expect(target and target.state == "completed", "acked, but not completed")
            self.expect(target and target.result == {"by": "the script"}, "the result is wrong")
        if self.verb == "nack":
            self.expect(target and target.state == "ready", "nacked, but not ready")
            history = {(error.message, error.attempt) for error in target.task.errors}
            self.expect(history == {("boom", 1)}, f"nacked once, but its history is {history}")
        if self.verb in ("nack_last", "bury", "cancel"):
            self.expect(target and target.state == "failed", f"{self.verb}, but not failed")
        if self.verb == "requeue":
            self.expect(target and target.state == "ready", "requeued, but not ready")

    def work_goes_on(self, queue: FileQueue) -> None:
        """Without a sweep: a worker that only claims gets everything."""
        mine = set()
        for _ in range(20):
            lease = queue.claim("next")
            if lease is None:
                break
            task = lease.task
            self.expect(task.payload == {"id": task.id, "filler": FILLER}, f"payload: {task}")
            if task.id == "target":
                self.expect(lease.fence > self.fence, f"fence {lease.fence} after {self.fence}")
                self.expect(lease.attempt in self.attempts(), f"delivery number {lease.attempt}")
            queue.ack(lease)
            mine.add(task.id)
        stats = queue.stats()
        open_ones = stats.ready + stats.delayed + stats.blocked + stats.leased
        self.expect(open_ones == 0, f"not everything could be claimed: {stats}")
        failed = {record.task.id for record in queue.list("failed")}
        may_fail = {"sad"}
        if self.verb in ("nack_last", "bury", "cancel", "requeue"):
            may_fail.add("target")
        self.expect(failed <= may_fail, f"failed: {failed}")
        for task_id in mine:
            record = queue.get(task_id)
            self.expect(record and record.state == "completed", f"{task_id} is not completed")
            self.expect(
                record and record.result is None,
                f"{task_id} was acked without a result, but has {record and record.result}",
            )

    def attempts(self) -> set[int]:
        if self.verb in ("ack", "nack", "heartbeat"):
            return {2}  # every delivery counts, once
        return {1, 2} if self.verb in ("claim", "claim_too_early", "bury", "cancel") else {1}

    def nothing_is_left_behind(self, queue: FileQueue) -> None:
        queue.sweep()
        left = [path.name for path in (self.root / "tmp").iterdir()]
        self.expect(not left, f"left in tmp/: {left}")
        aside = [str(path.relative_to(self.root)) for path in self.root.glob("quarantine/*/*")]
        self.expect(not aside, f"set aside: {aside}")
        bad = [str(finding) for finding in queue.doctor() if finding.level == "error"]
        self.expect(not bad, f"doctor: {bad}")
        for directory in self.root.glob("completed/??/*"):
            names = {path.name for path in directory.iterdir()}
            known = {"task.json", "lease.json", "result.json", "state.json"}
            self.expect(names <= known, f"{directory.name} holds {names}")


print(json.dumps([Check(case).run() for case in json.load(sys.stdin)]))
