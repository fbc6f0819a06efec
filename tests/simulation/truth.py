"""What is true of each task, by the changes of the store alone: no code of the engine is asked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import orjson

from dfq.lease import Lease

MAX_ERRORS = 20


class Violation(AssertionError):
    """An invariant does not hold."""


@dataclass
class Taken:
    """A lease as it came into the register."""

    order: int
    fence: int
    #: The attempts that counted before it.
    attempts: int
    #: It left the register without an outcome.
    forgotten: str = ""
    #: The task was completed, or failed for good, when it was taken.
    too_late: str = ""


@dataclass
class TaskTruth:
    """One task, from its objects."""

    task_id: str
    max_attempts: int = 0
    pushed: bool = False
    #: Somebody purged it, in whole or in part: from then on nothing is promised.
    purged: bool = False
    task: dict[str, Any] | None = None
    register: dict[str, Any] | None = None
    failed: dict[str, Any] | None = None
    #: fold -> the record in it
    folds: dict[str, dict[str, Any]] = field(default_factory=dict)

    attempts: int = 0
    errors: list[dict[str, Any]] = field(default_factory=list)
    ended: str = ""
    completed_by: str = ""
    acked_by: str = ""
    taken: dict[str, Taken] = field(default_factory=dict)
    #: lease_id -> its fence, and when it was handed out
    handed: dict[str, tuple[int, int]] = field(default_factory=dict)
    #: The versions of task.json that were created: a copy is no push, and no requeue.
    created: set[str] = field(default_factory=set)
    #: The outcomes that were written: a copy of one, on a copy of its claim, is the same one.
    outcomes: set[str] = field(default_factory=set)

    def fail(self, invariant: int, what: str) -> None:
        """Say that an invariant does not hold, unless nothing is promised."""
        if not self.purged:
            raise Violation(f"invariant {invariant}: task {self.task_id}: {what}")

    @property
    def is_present(self) -> bool:
        """Whether it is somewhere at all."""
        completed = self.register is not None and self.register.get("state") == "completed"
        return bool(self.task or completed or self.failed or self.folds)

    def is_void(self, register: dict[str, Any]) -> bool:
        """An older lease, or one without a task: it decides nothing."""
        return self.task is None or register.get("fence", 0) <= self.task.get("fence", 0)

    # Changes

    def task_changes(self, new: dict[str, Any] | None, cause: str) -> None:
        """task.json was written, or deleted."""
        old, self.task = self.task, new
        if old is None and new is not None and new["nonce"] not in self.created:
            self.created.add(new["nonce"])
            if cause.startswith("requeue") and not self._is_overtaken(new):
                self.attempts, self.ended = 0, ""
        if new is None:
            self.check_present()

    def _is_overtaken(self, new: dict[str, Any]) -> bool:
        """It failed once more since this requeue looked: that end counts for it as well."""
        ends = [self.failed, self.register if self.ended == "failed" else None]
        return any(end is not None and end["fence"] > new["fence"] for end in ends)

    def check_present(self) -> None:
        """Invariant 1."""
        if self.pushed and not self.is_present:
            self.fail(1, "it was pushed, and is nowhere any more")

    def register_changes(self, new: dict[str, Any] | None, order: int) -> None:
        """lease.json was written, or deleted."""
        old, self.register = self.register, new
        if old is not None and old["state"] == "leased":
            self._lease_leaves(old, new)
        if new is None:
            self.check_present()
        elif new["state"] == "leased":
            self._lease_comes(new, order)
        elif new["state"] != "free":
            self._outcome(old, new)

    def _lease_comes(self, new: dict[str, Any], order: int) -> None:
        known = self.taken.get(new["lease_id"])
        if known is None or new["fence"] > known.fence:
            self.taken[new["lease_id"]] = Taken(
                order, new["fence"], self.attempts, too_late=self.ended
            )

    def _lease_leaves(self, old: dict[str, Any], new: dict[str, Any] | None) -> None:
        if new is not None and new.get("lease_id") == old["lease_id"]:
            return
        if not self.is_void(old):
            taken = self.taken[old["lease_id"]]
            taken.forgotten = "it was deleted" if new is None else "another was put in its place"
            if old["lease_id"] in self.handed:
                self.fail(5, f"the lease {old['lease_id'][-6:]} ended unseen: {taken.forgotten}")

    def _outcome(self, old: dict[str, Any] | None, new: dict[str, Any]) -> None:
        lease_id, state = new["lease_id"], new["state"]
        if self.is_void(new) and (state != "completed" or self.task is not None):
            # Neither the engine nor we give anything on it.
            return
        if new["nonce"] in self.outcomes:
            return
        self.outcomes.add(new["nonce"])
        if old is not None and old["state"] not in ("leased", "free"):
            self.fail(3, f"the outcome {old['state']} was replaced by {state}")
        newest = max((fence for fence, _ in self.handed.values()), default=0)
        if new["fence"] < newest:
            self.fail(2, f"fence {new['fence']} came to {state} after fence {newest} was given")
        held = new.get("held", True)
        error = new.get("error")
        counted = self.attempts + (held and (error is not None or state == "completed"))
        if new["attempts"] != counted:
            self.fail(5, f"{state} after {counted} counted attempts says {new['attempts']}")
        if state == "back" and error is not None and counted >= self.max_attempts:
            self.fail(5, f"it goes back after {counted} of {self.max_attempts} attempts")
        self.attempts = counted
        self.errors += [] if error is None else [error]
        if state == "completed":
            if self.completed_by not in ("", lease_id):
                self.fail(3, f"completed by {self.completed_by[-6:]}, then by {lease_id[-6:]}")
            self.completed_by = lease_id
        if state != "back":
            self.ended = state

    # Answers

    def handed_out(self, lease: Lease, order: int) -> None:
        """A claim was answered."""
        taken = self.taken.get(lease.lease_id)
        if taken is None or taken.fence != lease.fence:
            self.fail(4, f"fence {lease.fence} was handed out, but never stood in the register")
            return
        if taken.forgotten:
            self.fail(5, f"a lease was handed out although {taken.forgotten}")
        if taken.too_late:
            self.fail(3, f"it was delivered although it was {taken.too_late}")
        for other, (fence, _) in self.handed.items():
            if (fence < lease.fence) != (self.taken[other].order < taken.order):
                self.fail(4, f"fences don't grow: {fence} and {lease.fence}")
            if fence == lease.fence:
                self.fail(4, f"fence {fence} was given twice")
        if lease.attempt != taken.attempts + 1:
            self.fail(5, f"attempt {lease.attempt} comes after {taken.attempts}")
        if lease.attempt > self.max_attempts:
            self.fail(5, f"attempt {lease.attempt} of {self.max_attempts}")
        self.handed[lease.lease_id] = lease.fence, order

    def obeyed(self, verb: str, lease: Lease, started: int) -> None:
        """A verb under a lease was answered well."""
        for fence, handed in self.handed.values():
            if fence > lease.fence and handed < started:
                self.fail(2, f"{verb} under fence {lease.fence} was obeyed after fence {fence}")
        if verb == "ack":
            if self.acked_by:
                self.fail(3, f"two acks were answered well, of {self.acked_by} and {lease.fence}")
            self.acked_by = lease.lease_id
            if self.completed_by != lease.lease_id:
                self.fail(3, f"an ack was answered well, but {self.completed_by!r} completed it")
            self.check_record()

    # At the end

    def records(self) -> list[dict[str, Any]]:
        """All that says the task is completed."""
        found = list(self.folds.values())
        if self.register is not None and self.register.get("state") == "completed":
            found.append(self.register)
        return found

    def check_record(self) -> None:
        """Invariant 3: the record names the lease that did it."""
        names = {record["lease_id"] for record in self.records()}
        if names != {self.completed_by}:
            self.fail(3, f"completed by {self.completed_by}, but the records name {names}")

    def _may_stay(self) -> tuple[str, ...]:
        """Without conditional deletes the register stays while the task may be requeued."""
        return ("completed", "free") if self.failed is None else ("failed", "free")

    def check_end(self) -> None:
        """Invariant 9 (and 5): one place, nothing left over, the whole history."""
        if self.task is not None:
            self.fail(9, "it is still pending when all is done")
        records = self.records()
        if bool(records) == (self.failed is not None) and (self.pushed or records):
            self.fail(9, f"{len(records)} records say completed, and failed is {self.failed}")
        if self.register is not None and self.register["state"] not in self._may_stay():
            self.fail(9, f"a lease is left over: {self.register}")
        if records:
            self.check_record()
        if self.failed is not None and self.ended != "failed":
            self.fail(9, f"it is failed, but was {self.ended or 'pending'} last")
        for record in [*records, *([self.failed] if self.failed else [])]:
            told = record["task"].get("errors") or []
            if told != self.errors[-MAX_ERRORS:]:
                self.fail(5, f"its history says {told}, but what happened is {self.errors}")


def read_body(body: bytes) -> dict[str, Any]:
    """A body of the engine's."""
    found: dict[str, Any] = orjson.loads(body)
    return found
