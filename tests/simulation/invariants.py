"""The invariants, checked at every change of the store and at every answer of a verb.

:mod:`tests.simulation.truth` has those of one task. Here the changes are told apart by their keys,
and the leases are watched that are ended for silence (invariant 7).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from dfq.ambient import Clock
from dfq.engines.s3.vacancy import is_gone
from dfq.lease import Lease
from dfq.stores.memory import MemoryStore
from tests.simulation.truth import TaskTruth, Violation, read_body
from tests.simulation.world import SkewedClock, World


class Handle(Protocol):
    """What is asked of a worker: until when it is certain of a lease, by its own account."""

    clock: SkewedClock

    def certain_until(self, lease_id: str) -> float | None: ...


class WatchedStore(MemoryStore):
    """A store that tells every change."""

    def __init__(self, *, clock: Clock, conditional_delete: bool) -> None:
        super().__init__("simulation", clock=clock)
        self.conditional_delete = conditional_delete
        self.changed: Callable[[str, bytes | None], None] = lambda key, body: None

    def _put(self, key: str, body: bytes) -> str:
        etag = super()._put(key, body)
        self.changed(key, body)
        return etag

    def _delete(self, key: str, etag: str | None) -> bool:
        done = super()._delete(key, etag)
        if done:
            self.changed(key, None)
        return done

    def keys(self) -> list[str]:
        """Every key there is."""
        return list(self._keys)


class Invariants:
    """Watches everything."""

    def __init__(self, world: World, max_attempts: int) -> None:
        self.world = world
        self.tasks: dict[str, TaskTruth] = {}
        self.handles: list[Handle] = []
        self.cause: Callable[[], str] = lambda: ""
        self._max_attempts = max_attempts
        self._order = itertools.count(1)
        #: lease_id -> when it was ended for silence
        self._silenced: dict[str, float] = {}

    def of(self, task_id: str) -> TaskTruth:
        """What is true of a task."""
        found = self.tasks.get(task_id)
        if found is None:
            found = self.tasks[task_id] = TaskTruth(task_id, self._max_attempts)
        return found

    # What the store tells

    def changed(self, key: str, body: bytes | None) -> None:
        """An object was written, or deleted."""
        area, _, rest = key.partition("/")
        if area == "completed":
            self._fold_changed(key, body)
            return
        if area not in ("pending", "failed"):
            return
        parts = rest.split("/")
        task = self.of(parts[1].removesuffix(".json"))
        new = None if body is None or is_gone(body) else read_body(body)
        if (new is None or new.get("state") == "free") and self.cause().startswith("purge"):
            task.purged = True
        if area == "failed":
            task.failed = new
            task.check_present()
        elif parts[2] == "task.json":
            task.task_changes(new, self.cause())
        else:
            self._watch_silence(task.register, new)
            task.register_changes(new, next(self._order))

    def _fold_changed(self, key: str, body: bytes | None) -> None:
        if body is not None:
            for line in body.splitlines():
                record = read_body(line)
                self.of(record["task_id"]).folds[key] = record
            return
        for task in self.tasks.values():
            if task.folds.pop(key, None) is not None:
                if self.cause().startswith("purge"):
                    task.purged = True
                task.check_present()

    def _watch_silence(self, old: dict[str, Any] | None, new: dict[str, Any] | None) -> None:
        if old is None or old["state"] != "leased" or new is None or new["state"] == "leased":
            return
        if (new.get("error") or {}).get("kind") == "crash":
            self._silenced[old["lease_id"]] = self.world.time
            self.check_silence(old["lease_id"])

    def check_silence(self, lease_id: str) -> None:
        """Invariant 7: nobody ends a lease whose holder is certain of it."""
        silenced_at = self._silenced.get(lease_id)
        if silenced_at is None:
            return
        for handle in self.handles:
            certain = handle.certain_until(lease_id)
            if certain is not None and handle.clock.true_time(certain) > silenced_at + 1e-6:
                raise Violation(
                    f"invariant 7: the lease {lease_id[-6:]} was ended for silence at "
                    f"{silenced_at:.3f}; its holder is certain of it until "
                    f"{handle.clock.true_time(certain):.3f}"
                )

    # What the verbs answer

    def begin(self) -> int:
        """A verb begins; its number is to be told with the answer."""
        return next(self._order)

    def pushed(self, task_ids: Iterable[str]) -> None:
        """A push was answered well."""
        for task_id in task_ids:
            task = self.of(task_id)
            task.pushed = True
            task.check_present()

    def handed_out(self, leases: Iterable[Lease]) -> None:
        """A claim was answered."""
        for lease in leases:
            self.of(lease.task_id).handed_out(lease, next(self._order))
            self.check_silence(lease.lease_id)

    def obeyed(self, verb: str, lease: Lease, started: int) -> None:
        """A verb under a lease was answered well."""
        self.of(lease.task_id).obeyed(verb, lease, started)
        self.check_silence(lease.lease_id)

    # At the end

    def check_end(self, keys: Iterable[str]) -> None:
        """Everything has come to its end, and nothing is left over."""
        for task in self.tasks.values():
            task.check_end()
        for key in keys:
            area = key.partition("/")[0]
            if area in ("lanes", "workers", "quarantine"):
                raise Violation(f"invariant 9: {key} is left over")
