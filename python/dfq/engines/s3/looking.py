"""Looking at tasks: one, many, or counts of all. Looking changes nothing."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

import orjson

from dfq.engines.s3.applying import Standing, came_late, standing
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
from dfq.engines.s3.fields import count
from dfq.engines.s3.finished import Finished
from dfq.engines.s3.keys import FAILED, PAUSED, PENDING, failed_key, home
from dfq.engines.s3.quarantine import set_aside_keys
from dfq.engines.s3.vacancy import is_mark
from dfq.engines.s3.view import Sighting, add_sighting
from dfq.errors import WrongState
from dfq.lease import Lease
from dfq.record import Filter, Record, State, Stats
from dfq.store import BodyTooLarge

#: Where a dependency is: completed is met, the rest is what ``blocked_by`` says.
Where = Literal["completed", "pending", "failed", "unknown"]

_READ_AT_ONCE = 256


class _NotForUs(WrongState):
    """The task is there, but only another dfq knows what to do with it."""


@dataclass
class Census:
    """All that is under ``pending/``, as it was when it was listed and read."""

    sightings: dict[str, Sighting] = field(default_factory=dict)
    standings: dict[str, Standing] = field(default_factory=dict)
    damaged: dict[str, str] = field(default_factory=dict)
    #: Tasks that are not for this dfq, and why.
    left_alone: dict[str, str] = field(default_factory=dict)
    foreign: list[str] = field(default_factory=list)

    def is_waiting(self, task_id: str) -> bool:
        """Whether there is a task that is not finished."""
        stands = self.standings.get(task_id)
        if stands is None:
            return task_id in self.sightings
        return stands.where in ("pending", "leased")


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

    def __init__(self, bucket: Bucket, beats: Beats, finished: Finished) -> None:
        self._bucket = bucket
        self._beats = beats
        self._finished = finished
        # What was read of tasks and leases, by its version.
        self._read_before: dict[str, tuple[str | None, str | None, Standing]] = {}

    # One task

    def standing_of(self, task_id: str, place: str | None = None) -> Standing:
        """How a task stands that is (or was) under ``pending/``; raises WrongState if damaged."""
        place = place or home(task_id)
        lease = self._bucket.read_lease(task_id, place)
        task = self._task_of(task_id, place)
        if lease is None and task is not None:
            # Between the two reads it may have been taken, and more. What a lease is compared
            # with was read after it: an older task would count too few deliveries.
            lease = self._bucket.read_lease(task_id, place)
            if lease is not None:
                task = self._task_of(task_id, place)
        return standing(task, lease)

    def _task_of(self, task_id: str, place: str) -> TaskFile | None:
        try:
            return self._bucket.read_task(task_id, place)
        except Damaged as error:
            raise WrongState(f"task {task_id!r} is damaged: {error}") from None
        except LeftAlone as error:
            raise _NotForUs(f"task {task_id!r} is left alone: {error}") from None

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

    def record(self, stands: Standing, wheres: Mapping[str, Where] | None = None) -> Record:
        """What :meth:`get` tells of a task under ``pending/``."""
        if stands.where == "completed":
            assert stands.lease is not None
            return self.completed_record(stands.lease.fields)
        assert stands.task is not None
        task = stands.task.task(self._bucket.policy)
        lease = None
        if stands.where == "leased" and stands.lease is not None:
            renewed = self._beats.last_sign(stands.lease)
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

    def census(self, records_before: float = math.inf) -> Census:
        """List and read all that is under ``pending/``; what has not changed is not read again.

        A lease without a task (mostly the record of a completed one) is left out if it was written
        later than ``records_before``.
        """
        census = Census()
        for stored in self._bucket.list_all(PENDING):
            if not add_sighting(census.sightings, stored):
                census.foreign.append(stored.key)
        items = [
            one
            for one in census.sightings.values()
            if one.task is not None or one.lease is None or one.lease.modified <= records_before
        ]
        for start in range(0, len(items), _READ_AT_ONCE):
            lot = items[start : start + _READ_AT_ONCE]
            for one, stands in zip(lot, self._bucket.map(self._resolve, lot), strict=True):
                if isinstance(stands, _NotForUs):
                    census.left_alone[one.task_id] = str(stands)
                elif isinstance(stands, WrongState):
                    census.damaged[one.task_id] = str(stands)
                else:
                    census.standings[one.task_id] = stands
        gone = self._read_before.keys() - census.sightings.keys()
        for task_id in gone:
            self._read_before.pop(task_id, None)
        return census

    def _resolve(self, one: Sighting) -> Standing | WrongState:
        task_etag = None if one.task is None else one.task.etag
        lease_etag = None if one.lease is None else one.lease.etag
        known = self._read_before.get(one.task_id)
        if known is not None and known[:2] == (task_etag, lease_etag):
            return known[2]
        try:
            stands = self.standing_of(one.task_id, one.place)
        except WrongState as error:
            return error
        task, lease = stands.task, stands.lease or stands.leftover
        if (task and task.etag) == task_etag and (lease and lease.etag) == lease_etag:
            self._read_before[one.task_id] = (task_etag, lease_etag, stands)
        return stands

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
        census = self.census()
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
                yield self.record(stands, wheres)
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

    def stats(self) -> Stats:
        """Count everything."""
        census = self.census()
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
