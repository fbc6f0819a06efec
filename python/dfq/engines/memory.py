"""A queue in memory: for tests, for trying things out, for work that may die with the process.

``memory://name`` is the same queue for everybody in the process; ``memory://`` is nobody
else's. It keeps the same promises as the others, except surviving the process.
"""

from __future__ import annotations

import os
import threading

# Within a queue `list` is a verb.
from builtins import list as List
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import cast

from dfq.ambient import SYSTEM_CHANCE, SYSTEM_CLOCK, Chance, Clock, new_id
from dfq.engines.arguments import checked_state
from dfq.engines.base import EngineQueue, bounded_text, not_requeued, stored_task
from dfq.engines.memory_store import Entry, Store
from dfq.errors import TaskNotFound, WrongState
from dfq.lease import Lease
from dfq.payload import JSON, decode
from dfq.policy import Policy
from dfq.record import (
    EVERYTHING,
    Filter,
    Finding,
    Outcome,
    Pushed,
    Record,
    State,
    Stats,
    SweepReport,
)
from dfq.task import ErrorKind, NewTask, check_id

_named: dict[str, Store] = {}
_named_lock = threading.Lock()


class MemoryQueue(EngineQueue):
    """A handle on a queue in memory. Policy, clock and chance are those of who opened it first."""

    def __init__(
        self,
        name: str = "",
        *,
        policy: Policy | None = None,
        clock: Clock = SYSTEM_CLOCK,
        chance: Chance = SYSTEM_CHANCE,
    ) -> None:
        self._store = _open_store(name, policy or Policy(), clock, chance)
        super().__init__(
            f"memory://{name}",
            policy=policy or self._store.policy,
            clock=self._store.clock,
            chance=self._store.chance,
        )
        self._boot_id = f"{self._chance.bits(64):016x}"
        # The version of the store at which a claim last found too little.
        self._seen = -1
        self._interrupts = 0
        self._answered = 0

    def _push(self, tasks: List[NewTask]) -> List[Pushed]:
        store = self._store
        with store.changed:
            fresh: dict[str, NewTask] = {}
            for new in tasks:
                if new.id not in store.entries:
                    fresh.setdefault(new.id, new)
            store.refuse_cycles(fresh.values())
            for new in fresh.values():
                task = replace(stored_task(new, self._policy), payload=None)
                store.add(Entry(task, new.payload))
            # The first of an id is the one that was stored; taken out, the next finds none.
            return [
                Pushed(new.id, created=True)
                if fresh.pop(new.id, None) is not None
                else Pushed(new.id, created=False, state=store.state_of(store.entries[new.id]))
                for new in tasks
            ]

    def _claim(
        self, limit: int, worker_id: str, lease_seconds: float, filter: Filter
    ) -> List[Lease]:
        store = self._store
        leases: List[Lease] = []
        with store.changed:
            self._settle()
            while len(leases) < limit and store.paused is None:
                task_id = store.ready.choose(filter, self._chance)
                if task_id is None:
                    break
                leases.append(self._lease(store.entries[task_id], worker_id, lease_seconds))
            if len(leases) < limit:
                self._seen = store.version
        return leases

    def _lease(self, entry: Entry, worker_id: str, lease_seconds: float) -> Lease:
        now = self._clock.wall()
        entry.fence += 1
        lease = Lease(
            task=entry.view(),
            worker_id=worker_id,
            lease_id=new_id(self._clock, self._chance),
            fence=entry.fence,
            attempt=entry.task.attempts + 1,
            host=os.uname().nodename,
            boot_id=self._boot_id,
            pid=os.getpid(),
            acquired_at=now,
            heartbeat_at=now,
            expires_at=now + lease_seconds,
        )
        self._store.hold(entry, lease, lease_seconds)
        return lease

    def _heartbeat(self, lease: Lease, lease_seconds: float) -> Lease:
        with self._store.changed:
            entry = self._store.held_by(lease)
            now = self._clock.wall()
            renewed = replace(lease, heartbeat_at=now, expires_at=now + lease_seconds)
            self._store.hold(entry, renewed, lease_seconds)
            return renewed

    def _ack(self, lease: Lease, result: bytes | None) -> None:
        with self._store.changed:
            entry = self._store.held_by(lease)
            entry.result = result
            entry.task = replace(entry.task, attempts=lease.attempt)
            self._store.finish(entry, "completed")

    def _nack(self, lease: Lease, error: str, kind: str, delay_seconds: float) -> Outcome:
        with self._store.changed:
            entry = self._store.held_by(lease)
            self._store.note(entry, cast(ErrorKind, kind), error, lease)
            again = self._store.give_back(entry, self._after(delay_seconds))
            return Outcome.RETRY if again else Outcome.FAILED

    def _release(self, lease: Lease, delay_seconds: float) -> None:
        with self._store.changed:
            entry = self._store.held_by(lease)
            self._store.put_back(entry, self._after(delay_seconds))

    def _bury_lease(self, lease: Lease, reason: str) -> None:
        with self._store.changed:
            self._to_failed(self._store.held_by(lease), reason, "buried")

    def _fail(self, task_id: str, reason: str, kind: str, held: bool) -> None:
        with self._store.changed:
            entry = self._entry(task_id)
            if entry.place != "pending":
                raise WrongState(f"task {task_id!r} is {entry.place} already; nothing was changed")
            if entry.lease is not None and not held:
                raise WrongState(
                    f"task {task_id!r} is held by {entry.lease.worker_id}; "
                    "cancel it, or wait until it is given back"
                )
            self._to_failed(entry, reason, cast(ErrorKind, kind))

    def _to_failed(self, entry: Entry, reason: str, kind: ErrorKind) -> None:
        lease = entry.lease
        self._store.note(entry, kind, reason, lease)
        if lease is not None:
            entry.task = replace(entry.task, attempts=lease.attempt)
        self._store.finish(entry, "failed")

    def requeue(self, task_id: str) -> None:
        """Give a failed task its attempts back; its history and fence stay."""
        with self._store.changed:
            entry = self._entry(check_id(task_id))
            if entry.place != "failed":
                raise WrongState(not_requeued(task_id, self._store.state_of(entry)))
            expires_at = entry.task.expires_at
            if expires_at is not None and expires_at <= self._clock.wall():
                # Its time was up; asked for again, it gets to run.
                expires_at = None
            entry.task = replace(entry.task, attempts=0, expires_at=expires_at)
            self._store.put_back(entry, None)

    def pause(self, reason: str = "") -> None:
        """Stop handing out tasks, for everybody who opened this queue. Running ones finish."""
        with self._store.changed:
            self._store.paused = bounded_text(reason)

    def resume(self) -> None:
        """Undo :meth:`pause`."""
        with self._store.changed:
            self._store.paused = None
            self._store.announce()

    def get(self, task_id: str) -> Record | None:
        """All about one task, or None."""
        with self._store.changed:
            entry = self._store.entries.get(check_id(task_id))
            return None if entry is None else self._store.record(entry)

    def list(
        self, state: State | None = None, *, filter: Filter = EVERYTHING, limit: int | None = None
    ) -> Iterator[Record]:
        """Tasks in a state (or all), in no promised order; as they stand at this moment."""
        store = self._store
        state = checked_state(state)
        records: List[Record] = []
        with store.changed:
            for entry in store.entries.values():
                if limit is not None and len(records) >= limit:
                    break
                if state in (None, store.state_of(entry)) and filter.matches(entry.task):
                    records.append(store.record(entry))
        return iter(records)

    def leases(self) -> List[Lease]:
        """Who holds what."""
        with self._store.changed:
            return [e.lease for e in self._store.entries.values() if e.held and e.lease]

    def stats(self) -> Stats:
        """Count everything."""
        store = self._store
        with store.changed:
            states: Counter[str] = Counter()
            projects: Counter[str] = Counter()
            labels: Counter[str] = Counter()
            oldest: float | None = None
            for entry in store.entries.values():
                state = store.state_of(entry)
                states[state] += 1
                if state == "blocked" and set(store.blocked_by(entry).values()) - {"pending"}:
                    states["stuck"] += 1
                if entry.place == "pending":
                    labels.update(entry.task.labels)
                    projects.update([entry.task.project] if entry.task.project else [])
                if state == "ready":
                    oldest = min(entry.task.created_at, oldest or entry.task.created_at)
            return Stats(
                **states,
                by_project=dict(projects),
                by_label=dict(labels),
                oldest_ready_seconds=None
                if oldest is None
                else max(0.0, self._clock.wall() - oldest),
                paused=store.paused is not None,
            )

    def purge(self, state: State | None = None, *, older_than_seconds: float | None = None) -> int:
        """Delete tasks for good; leased ones only by ``state="leased"``."""
        store = self._store
        state = checked_state(state)
        with store.changed:
            latest = self._clock.wall() - (older_than_seconds or 0.0)
            doomed = [
                entry
                for entry in store.entries.values()
                if (not entry.held if state is None else store.state_of(entry) == state)
                and (
                    older_than_seconds is None
                    or (entry.finished_at or entry.task.created_at) <= latest
                )
            ]
            for entry in doomed:
                store.remove(entry)
            return len(doomed)

    def sweep(self) -> SweepReport:
        """End silent leases and lives that are over; drop old finished tasks if so agreed."""
        with self._store.changed:
            ended, failed, expired = self._settle()
            dropped = 0
            if self._policy.finished == "drop":
                age = self._policy.finished_after_seconds
                dropped = self.purge("completed", older_than_seconds=age)
            return SweepReport(expired_leases=ended, failed=failed + expired, dropped=dropped)

    def doctor(self) -> List[Finding]:
        """Look for tasks that will not move without help. Changes nothing."""
        findings = []
        with self._store.changed:
            if self._store.paused is not None:
                reason = self._store.paused or "no reason given"
                message = f"the queue is paused ({reason})"
                findings.append(Finding("warning", "queue", message, "dfq resume"))
            for entry in self._store.entries.values():
                for dependency, why in self._store.blocked_by(entry).items():
                    if why != "pending":
                        findings.append(_stuck(entry.task.id, dependency, why))
        return findings

    def load_state(self, task_id: str) -> JSON:
        """What :meth:`save_state` kept for this task, or None."""
        with self._store.changed:
            entry = self._store.entries.get(check_id(task_id))
            return None if entry is None or entry.state is None else decode(entry.state)

    def _save_state(self, lease: Lease, state: bytes) -> None:
        with self._store.changed:
            self._store.held_by(lease).state = state

    def wait(self, timeout_seconds: float) -> bool:
        """Block until there may be work, at most so long. True: worth a claim."""
        store = self._store
        with store.changed:
            asked = self._answered
            store.end_delays()
            store.changed.wait_for(
                lambda: store.version != self._seen or self._interrupts != asked,
                min(timeout_seconds, self._until_due()),
            )
            self._answered = self._interrupts
            store.end_delays()
            return store.version != self._seen or self._until_due() <= 0

    def interrupt(self) -> None:
        """Wake every thread that is in :meth:`wait`, or else the next one that comes."""
        with self._store.changed:
            self._interrupts += 1
            self._store.changed.notify_all()

    def close(self) -> None:
        """Wake the waiting threads. The tasks stay for whoever opens the name again."""
        self.interrupt()

    def _settle(self) -> tuple[int, int, int]:
        self._store.end_delays()
        ended, failed = self._store.end_leases()
        return ended, failed, self._store.end_lives()

    def _until_due(self) -> float:
        """Seconds until time alone may make a task claimable."""
        until = threading.TIMEOUT_MAX
        if (delay := self._store.delays.next()) is not None:
            until = delay - self._clock.wall()
        if (deadline := self._store.deadlines.next()) is not None:
            until = min(until, deadline - self._clock.boot())
        return max(0.0, until)

    def _after(self, delay_seconds: float) -> float | None:
        return self._clock.wall() + delay_seconds if delay_seconds else None

    def _entry(self, task_id: str) -> Entry:
        entry = self._store.entries.get(task_id)
        if entry is None:
            raise TaskNotFound(
                f"no task {task_id!r} in {self._url}; `dfq ls` lists those there are"
            )
        return entry


def _open_store(name: str, policy: Policy, clock: Clock, chance: Chance) -> Store:
    if not name:
        return Store(policy, clock, chance)
    with _named_lock:
        if name not in _named:
            _named[name] = Store(policy, clock, chance)
        return _named[name]


def _stuck(task_id: str, dependency: str, why: str) -> Finding:
    if why == "failed":
        message = f"waits for {dependency!r}, which failed"
        advice = f"dfq requeue {dependency}, or dfq cancel {task_id}"
    else:
        message = f"waits for {dependency!r}, which is not in the queue"
        advice = f"push {dependency}, or dfq cancel {task_id}"
    return Finding("warning", task_id, message, advice)
