"""Looking at tasks: one, many, or counts of all. Looking changes nothing."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import orjson

from dfq.engines.s3.applying import Standing, came_late
from dfq.engines.s3.beats import Beats
from dfq.engines.s3.bodies import (
    Damaged,
    LeaseFile,
    LeftAlone,
    TaskFile,
    own,
    seconds_of,
)
from dfq.engines.s3.bucket import Bucket
from dfq.engines.s3.census import Census, Counting
from dfq.engines.s3.fields import count
from dfq.engines.s3.finished import Finished
from dfq.engines.s3.keys import FAILED, PAUSED, PENDING, failed_key, home, read_pending
from dfq.engines.s3.quarantine import set_aside_keys
from dfq.engines.s3.standings import Standings
from dfq.engines.s3.vacancy import is_mark
from dfq.errors import WrongState
from dfq.lease import Lease
from dfq.record import Filter, Record, State, Stats
from dfq.store import BodyTooLarge

#: Where a dependency is: completed is met, the rest is what ``blocked_by`` says.
Where = Literal["completed", "pending", "failed", "unknown"]


@dataclass(frozen=True)
class FailedFile:
    """The record of a failed task."""

    task: TaskFile
    holder: LeaseFile | None
    finished_at: float
    etag: str
    fence: int


class Looking:
    """Reads tasks, wherever they are."""

    def __init__(
        self, bucket: Bucket, standings: Standings, beats: Beats, finished: Finished
    ) -> None:
        self._bucket = bucket
        self._standings = standings
        self._beats = beats
        self._finished = finished
        self._counting = Counting(bucket, standings)

    # One task

    def standing_of(self, task_id: str, place: str | None = None) -> Standing:
        """How a task stands that is (or was) under ``pending/``; raises WrongState if damaged."""
        return self._standings.now(task_id, place)

    def get(self, task_id: str) -> Record | None:
        """All about one task."""
        # A task that moves (it failed, it was requeued) may be missed once, but not twice.
        for _ in range(2):
            stands = self.standing_of(task_id)
            if stands.where == "failed":
                return self._failed_record(*_as_failed(stands))
            if stands.where != "nowhere":
                return self.record(stands)
            # A record in failed/ may be a copy that came late; one of a completion is the end.
            record = self._finished.find(task_id)
            if record is not None:
                return self.completed_record(record)
            failed = self.failed(task_id)
            if failed is not None:
                return self._failed_record(failed.task, failed.holder, failed.finished_at)
        return None

    def failed(self, task_id: str) -> FailedFile | None:
        """The record of a failed task, or None."""
        try:
            found = self._bucket.read(failed_key(task_id))
            if found is None:
                return None
            return _read_failed(task_id, found.body, found.etag, found.modified)
        except (Damaged, LeftAlone, BodyTooLarge) as error:
            raise WrongState(
                f"the record of the failed task {task_id!r} is damaged: {error}"
            ) from None

    def readable_failed(self, task_id: str) -> FailedFile | None:
        """The record of a failed task; a damaged one is as good as none, and hides no other."""
        try:
            return self.failed(task_id)
        except WrongState:
            return None

    def where(self, task_id: str) -> Where:
        """Where a dependency is."""
        stands = self.standing_of(task_id)
        if stands.where == "completed":
            return "completed"
        if stands.where in ("pending", "leased"):
            return "pending"
        if stands.where == "failed":
            return "failed"
        if self._finished.find(task_id) is not None:
            return "completed"
        return "failed" if self._bucket.has(failed_key(task_id)) else "unknown"

    def is_completed(self, task_id: str) -> bool:
        """Whether a dependency is met."""
        lease = self._bucket.read_lease(task_id, home(task_id))
        if lease is not None:
            return lease.state == "completed"
        return self._finished.find(task_id) is not None

    def end_of_copied(self, task: TaskFile) -> Literal["completed", "failed"] | None:
        """How the task ended that this is a late copy of; None if it is the task itself."""
        if not came_late(task):
            return None
        if self._finished.find(task.task_id) is not None:
            return "completed"
        failed = self.readable_failed(task.task_id)
        # A requeue goes on with the fence that the task had when it failed.
        return "failed" if failed is not None and task.fence < failed.fence else None

    # Records

    def record(
        self,
        stands: Standing,
        wheres: Mapping[str, Where] | None = None,
        read_after: float = math.inf,
    ) -> Record:
        """What :meth:`get` tells of a task under ``pending/``.

        A sign of life that was read after that moment, on our own clock, is not read again.
        """
        if stands.where == "completed":
            assert stands.lease is not None
            return self.completed_record(stands.lease.fields)
        assert stands.task is not None
        task = stands.task.task(self._bucket.policy)
        lease = None
        if stands.where == "leased" and stands.lease is not None:
            renewed = self._beats.last_sign(stands.lease, read_after)
            lease = stands.lease.lease(
                task, task.attempts + 1, renewed=self._signed(stands, renewed)
            )
        unmet = self._unmet(task.depends_on, wheres)
        return Record(task=task, state=self._state(stands, unmet), lease=lease, blocked_by=unmet)

    def _signed(self, stands: Standing, renewed: tuple[float, float]) -> tuple[float, float] | None:
        """The last sign of life, told as finely as is known: the store's times have no fraction."""
        assert stands.lease is not None
        held = self._beats.get(stands.lease.lease_id)
        if held is not None:
            return held.signed_wall, held.seconds
        fields = stands.lease.fields
        if renewed[0] > stands.lease.modified or "heartbeat_at" not in fields:
            return renewed
        return seconds_of(fields["heartbeat_at"]), renewed[1]

    def _unmet(
        self, depends_on: Iterable[str], wheres: Mapping[str, Where] | None
    ) -> dict[str, str]:
        found = {d: self.where(d) if wheres is None else wheres[d] for d in depends_on}
        return {d: where for d, where in found.items() if where != "completed"}

    def _state(self, stands: Standing, unmet: Mapping[str, str]) -> State:
        assert stands.task is not None
        if stands.where == "leased":
            return "leased"
        if unmet:
            return "blocked"
        not_before = stands.task.checked.not_before
        late = not_before is not None and not_before > self._bucket.clock.wall()
        return "delayed" if late else "ready"

    def _failed_record(
        self, task: TaskFile, holder: LeaseFile | None, finished_at: float
    ) -> Record:
        value = task.task(self._bucket.policy)
        lease = None if holder is None else holder.lease(value, value.attempts, renewed=None)
        return Record(task=value, state="failed", lease=lease, finished_at=finished_at)

    def completed_record(self, fields: dict[str, Any]) -> Record:
        """What is told of a completed task, by the record of its last lease."""
        task_id = fields["task_id"]
        lease = LeaseFile(task_id, "", fields, "", seconds_of(fields["finished_at"]))
        file = TaskFile(task_id, "", fields["task"], "", lease.modified)
        attempts = int(fields.get("attempts", 1))
        task = replace(file.task(self._bucket.policy), attempts=attempts)
        return Record(
            task=task,
            state="completed",
            lease=lease.lease(task, attempts, renewed=None),
            result=own(fields.get("result")),
            finished_at=lease.modified,
        )

    # Many

    def census(self, *, exactly: bool = False, pending_only: bool = False) -> Census:
        """All that is under ``pending/``; what has not changed is not read again.

        ``exactly``: a lease is looked for even where the listing shows none. ``pending_only``:
        leases without a task are not read.
        """
        return self._counting.census(exactly, pending_only)

    def failed_ids(self) -> dict[str, str]:
        """The failed tasks, and the keys of their records."""
        ids = {}
        for stored in self._bucket.list_all(FAILED):
            name = stored.key.rsplit("/", 1)[-1]
            if name.endswith(".json") and not is_mark(stored):
                ids[name[: -len(".json")]] = stored.key
        return ids

    def records(self, state: State | None, filter: Filter) -> Iterator[Record]:
        """The tasks in a state (or all) that a filter wants."""
        for record in self._records(state):
            if state in (None, record.state) and filter.matches(record.task):
                yield record

    def _records(self, state: State | None) -> Iterator[Record]:
        told: set[str] = set()
        began = self._bucket.clock.boot()
        pending_only = state in ("ready", "delayed", "blocked", "leased")
        census = self.census(pending_only=pending_only)
        failed = self.failed_ids()
        wheres = self._wheres(census, failed)
        for task_id, stands in census.standings.items():
            if stands.where == "nowhere":
                continue
            told.add(task_id)
            if stands.where == "failed":
                if state in (None, "failed"):
                    yield self._failed_record(*_as_failed(stands))
            elif state is None or (stands.where == "completed") == (state == "completed"):
                yield self.record(stands, wheres, began)
        if state in (None, "failed"):
            for task_id in failed.keys() - told:
                found = self.readable_failed(task_id)
                if found is not None:
                    yield self._failed_record(found.task, found.holder, found.finished_at)
        if state in (None, "completed"):
            for fields in self._finished.all():
                if fields["task_id"] not in told:
                    yield self.completed_record(fields)

    def _wheres(self, census: Census, failed: Mapping[str, str]) -> dict[str, Where]:
        """Where every dependency is that a pending task names."""
        named = {
            dependency
            for stands in census.standings.values()
            if stands.where in ("pending", "leased") and stands.task is not None
            for dependency in stands.task.checked.depends_on
        }
        wheres: dict[str, Where] = {}
        for task_id in named:
            stands = census.standings.get(task_id)
            if stands is not None and stands.where != "nowhere":
                where = "pending" if stands.where == "leased" else stands.where
                wheres[task_id] = cast(Where, where)
            elif task_id in failed:
                wheres[task_id] = "failed"
        rest = named - wheres.keys()
        completed = self._finished.known(sorted(rest))
        wheres |= {task_id: "completed" if task_id in completed else "unknown" for task_id in rest}
        return wheres

    def leases(self) -> list[Lease]:
        """Who holds what."""
        return [
            record.lease for record in self.records("leased", Filter()) if record.lease is not None
        ]

    def count_pending(self) -> int:
        """How many tasks there are under ``pending/``, by the listing alone."""
        pending = (
            read_pending(one.key) for one in self._bucket.list_all(PENDING) if not is_mark(one)
        )
        return sum(1 for key in pending if key is not None and not key.is_lease)

    def stats(self, *, pending_only: bool = False) -> Stats:
        """Count everything, or leave out what finished lately and is in no record yet."""
        census = self.census(pending_only=pending_only)
        failed = self.failed_ids()
        wheres = self._wheres(census, failed)
        states: Counter[str] = Counter()
        projects: Counter[str] = Counter()
        labels: Counter[str] = Counter()
        oldest: float | None = None
        for task_id, stands in census.standings.items():
            failed.pop(task_id, None) if stands.where != "nowhere" else None
            if stands.where in ("nowhere", "completed", "failed"):
                states[stands.where] += 1
                continue
            assert stands.task is not None
            task = stands.task.checked
            unmet = self._unmet(task.depends_on, wheres)
            state = self._state(stands, unmet)
            states[state] += 1
            states["stuck"] += state == "blocked" and bool(set(unmet.values()) - {"pending"})
            labels.update(task.labels)
            projects.update([task.project] if task.project else [])
            if state == "ready":
                oldest = min(task.created_at, oldest or task.created_at)
        states["completed"] += self._finished.count()
        states["failed"] += len(failed)
        states["quarantined"] = len(set_aside_keys(self._bucket))
        states.pop("nowhere", None)
        now = self._bucket.clock.wall()
        return Stats(
            **states,
            by_project=dict(projects),
            by_label=dict(labels),
            oldest_ready_seconds=None if oldest is None else max(0.0, now - oldest),
            paused=self._bucket.has(PAUSED),
        )


def _as_failed(stands: Standing) -> tuple[TaskFile, LeaseFile | None, float]:
    assert stands.task is not None and stands.lease is not None
    lease = stands.lease
    return stands.task, lease if lease.fields.get("held", True) else None, lease.ended_at


def _read_failed(task_id: str, body: bytes, etag: str, modified: float) -> FailedFile:
    try:
        fields = orjson.loads(body)
        envelope = orjson.dumps(fields["task"])
        finished_at = seconds_of(fields.get("finished_at", modified))
        fence = count(fields, "fence", 0)
        holder = fields.get("holder")
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise Damaged(str(error)) from None
    task = TaskFile.read(task_id, home(task_id), envelope, etag, modified)
    lease = None
    if holder is not None:
        lease = LeaseFile(task_id, task.place, holder, "", finished_at).verified()
    return FailedFile(task, lease, finished_at, etag, fence)
