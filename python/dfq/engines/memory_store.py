"""What a memory queue holds: its tasks, in one place for all who opened it by name."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from dfq.ambient import Chance, Clock
from dfq.engines.base import MAX_ERRORS, circle
from dfq.engines.memory_index import ReadyIndex, Timetable
from dfq.errors import AlreadyCompleted, DependencyCycle, LeaseNotHeld, LeaseTaken
from dfq.lease import Lease
from dfq.payload import decode
from dfq.policy import Policy
from dfq.record import Record, State
from dfq.task import ErrorKind, NewTask, Task, TaskError


@dataclass
class Entry:
    """One task as it is held. ``task`` lacks its payload, which is kept encoded, so that
    nobody who changes what he was handed changes what is stored."""

    task: Task
    payload: bytes
    place: Literal["pending", "completed", "failed"] = "pending"
    fence: int = 0
    #: The holder while pending; the last one when finished.
    lease: Lease | None = None
    unmet: set[str] = field(default_factory=set)
    result: bytes | None = None
    state: bytes | None = None
    finished_at: float | None = None

    @property
    def held(self) -> bool:
        """Whether somebody has a lease that was not ended."""
        return self.place == "pending" and self.lease is not None

    def view(self) -> Task:
        """The task with a payload of the caller's own."""
        return replace(self.task, payload=decode(self.payload))


class Store:
    """The tasks and what is derived from them. Callers hold ``changed`` (it is the lock)."""

    def __init__(self, policy: Policy, clock: Clock, chance: Chance) -> None:
        self.policy = policy
        self.clock = clock
        self.chance = chance
        self.changed = threading.Condition()
        #: Grows whenever a claim that found nothing might find something.
        self.version = 0
        self.paused: str | None = None
        self.entries: dict[str, Entry] = {}
        self.ready = ReadyIndex()
        self.delays = Timetable()
        self.lifetimes = Timetable()
        self.deadlines = Timetable()
        # dependency -> the tasks that name it and are not completed
        self._dependents: defaultdict[str, set[str]] = defaultdict(set)

    # Coming and going

    def add(self, entry: Entry) -> None:
        """Take in a new task."""
        task = entry.task
        self.entries[task.id] = entry
        entry.unmet = {d for d in task.depends_on if not self._completed(d)}
        for dependency in task.depends_on:
            self._dependents[dependency].add(task.id)
        if task.expires_at is not None:
            self.lifetimes.set(task.id, task.expires_at)
        self.offer(entry)

    def offer(self, entry: Entry) -> None:
        """A pending task that nobody holds: claimable now, or when its delay is over."""
        task = entry.task
        entry.place = "pending"
        entry.lease = None
        entry.finished_at = None
        if task.not_before is not None and task.not_before > self.clock.wall():
            self.delays.set(task.id, task.not_before)
        elif not entry.unmet:
            self.ready.add(task)
        self.announce()

    def finish(self, entry: Entry, place: Literal["completed", "failed"]) -> None:
        """A task that will not be claimed any more."""
        self._withdraw(entry)
        entry.place = place
        entry.finished_at = self.clock.wall()
        if place == "completed":
            self._forget_dependencies(entry)
            for dependent in self._dependents_of(entry):
                dependent.unmet.discard(entry.task.id)
                if dependent.place == "pending" and not dependent.unmet:
                    self.offer(dependent)

    def remove(self, entry: Entry) -> None:
        """Forget a task. Whoever depends on it has an unknown dependency from now on."""
        self._withdraw(entry)
        self._forget_dependencies(entry)
        for dependent in self._dependents_of(entry):
            dependent.unmet.add(entry.task.id)
            self.ready.discard(dependent.task)
        del self.entries[entry.task.id]

    def _dependents_of(self, entry: Entry) -> list[Entry]:
        return [self.entries[task_id] for task_id in self._dependents.get(entry.task.id, ())]

    def _forget_dependencies(self, entry: Entry) -> None:
        for dependency in entry.task.depends_on:
            dependents = self._dependents[dependency]
            dependents.discard(entry.task.id)
            if not dependents:
                del self._dependents[dependency]

    def hold(self, entry: Entry, lease: Lease, lease_seconds: float) -> None:
        """``lease`` is the newest on the task, from now for ``lease_seconds``."""
        self._withdraw(entry)
        entry.lease = lease
        self.deadlines.set(entry.task.id, self.clock.boot() + lease_seconds)

    def announce(self) -> None:
        """Wake whoever waits for work."""
        self.version += 1
        self.changed.notify_all()

    def _withdraw(self, entry: Entry) -> None:
        self.ready.discard(entry.task)
        self.delays.forget(entry.task.id)
        self.deadlines.forget(entry.task.id)
        self.lifetimes.forget(entry.task.id)

    # What time does

    def end_delays(self) -> None:
        """Offer the tasks whose delay is over."""
        for task_id in self.delays.take_due(self.clock.wall()):
            entry = self.entries[task_id]
            if not entry.unmet:
                self.ready.add(entry.task)
            self.announce()

    def end_leases(self) -> tuple[int, int]:
        """Take back the tasks of holders that went silent: how many, and how many failed."""
        ended = failed = 0
        for task_id in self.deadlines.take_due(self.clock.boot()):
            entry = self.entries[task_id]
            lease = entry.lease
            assert lease is not None
            ended += 1
            self.note(entry, "crash", f"worker {lease.worker_id} went silent", lease)
            failed += not self.give_back(entry, None)
        return ended, failed

    def end_lives(self) -> int:
        """Fail the tasks nobody claimed in time: how many."""
        expired = 0
        for task_id in self.lifetimes.take_due(self.clock.wall()):
            entry = self.entries[task_id]
            self.note(entry, "expired", "nobody claimed it within its time to live", None)
            self.finish(entry, "failed")
            expired += 1
        return expired

    def give_back(self, entry: Entry, not_before: float | None) -> bool:
        """Count the delivery; True if the task is tried again, False if it failed for good."""
        attempts = entry.task.attempts + 1
        entry.task = replace(entry.task, attempts=attempts)
        if attempts >= entry.task.max_attempts:
            self.finish(entry, "failed")
            return False
        self.put_back(entry, not_before)
        return True

    def put_back(self, entry: Entry, not_before: float | None) -> None:
        """Pending again, nobody's, from ``not_before`` on."""
        self._withdraw(entry)
        entry.task = replace(entry.task, not_before=not_before)
        if entry.task.expires_at is not None:
            self.lifetimes.set(entry.task.id, entry.task.expires_at)
        self.offer(entry)

    def note(self, entry: Entry, kind: ErrorKind, message: str, lease: Lease | None) -> None:
        """Add to the task's history."""
        error = TaskError(
            at=self.clock.wall(),
            attempt=entry.task.attempts if lease is None else lease.attempt,
            fence=entry.fence,
            worker_id=None if lease is None else lease.worker_id,
            kind=kind,
            message=message,
        )
        entry.task = replace(entry.task, errors=(*entry.task.errors, error)[-MAX_ERRORS:])

    # Questions

    def held_by(self, lease: Lease) -> Entry:
        """The task, if ``lease`` is the newest on it and was not ended; else why not."""
        entry = self.entries.get(lease.task_id)
        where = f"task {lease.task_id!r}"
        if entry is None:
            raise LeaseNotHeld(f"{where} was deleted from the queue; this lease is void")
        holder = entry.lease
        if entry.place == "completed" and holder is not None:
            raise AlreadyCompleted(
                f"{where} is completed already, by {holder.worker_id} under fence {holder.fence}"
            )
        if entry.place == "failed" or holder is None:
            raise LeaseNotHeld(
                f"{where} is held by nobody: the lease with fence {lease.fence} ended"
            )
        if holder.lease_id != lease.lease_id:
            raise LeaseTaken(
                f"{where} is held by {holder.worker_id} under fence {holder.fence}, "
                f"newer than {lease.fence}; stop this work"
            )
        return entry

    def state_of(self, entry: Entry) -> State:
        """Where a task stands at this moment."""
        if entry.place != "pending":
            return entry.place
        if entry.held:
            return "leased"
        if entry.unmet:
            return "blocked"
        not_before = entry.task.not_before
        return "delayed" if not_before is not None and not_before > self.clock.wall() else "ready"

    def blocked_by(self, entry: Entry) -> Mapping[str, str]:
        """The dependencies a task still waits for: pending, failed or unknown."""
        if entry.place != "pending":
            return {}
        places = ((d, self.entries.get(d)) for d in entry.task.depends_on if d in entry.unmet)
        return {d: "unknown" if other is None else other.place for d, other in places}

    def record(self, entry: Entry) -> Record:
        """All about a task."""
        return Record(
            task=entry.view(),
            state=self.state_of(entry),
            lease=entry.lease,
            result=None if entry.result is None else decode(entry.result),
            finished_at=entry.finished_at,
            blocked_by=self.blocked_by(entry),
        )

    def refuse_cycles(self, tasks: Iterable[NewTask]) -> None:
        """Raise DependencyCycle if storing these would make a task wait for itself."""
        new = {task.id: task.depends_on for task in tasks}
        named = {dependency for dependencies in new.values() for dependency in dependencies}
        # Only a task that somebody waits for can close a circle.
        for start in (
            task_id for task_id in new if task_id in named or task_id in self._dependents
        ):
            came_from: dict[str, str] = {}
            remaining = [start]
            while remaining:
                task_id = remaining.pop()
                entry = self.entries.get(task_id)
                depends_on = new.get(task_id, entry.unmet if entry is not None else ())
                for dependency in depends_on:
                    if dependency == start:
                        raise DependencyCycle(circle(start, task_id, came_from))
                    if dependency not in came_from:
                        came_from[dependency] = task_id
                        remaining.append(dependency)

    def _completed(self, task_id: str) -> bool:
        entry = self.entries.get(task_id)
        return entry is not None and entry.place == "completed"
