"""Reading all that is pending, to count it and to tell of it."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Final

from dfq.engines.s3.applying import Standing
from dfq.engines.s3.bucket import Bucket
from dfq.engines.s3.keys import PENDING
from dfq.engines.s3.standings import NotForUs, Standings, is_without_task
from dfq.engines.s3.view import Sighting, add_sighting
from dfq.errors import WrongState

_READ_AT_ONCE: Final = 256
#: What was read is kept, of so many tasks and so many bytes of bodies; the rest is read again.
KEPT_TASKS: Final = 10_000
KEPT_BYTES: Final = 4 << 20


@dataclass
class Census:
    """All that is under ``pending/``, as it was when it was listed and read."""

    sightings: dict[str, Sighting] = field(default_factory=dict)
    standings: dict[str, Standing] = field(default_factory=dict)
    damaged: dict[str, str] = field(default_factory=dict)
    #: Tasks that are not for this dfq, and why.
    left_alone: dict[str, str] = field(default_factory=dict)
    foreign: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Kept:
    versions: tuple[str | None, str | None]
    stands: Standing
    size: int


class Counting:
    """Takes the census. Safe from threads."""

    def __init__(self, bucket: Bucket, standings: Standings) -> None:
        self._bucket = bucket
        self._standings = standings
        self._lock = threading.Lock()
        self._kept: dict[str, _Kept] = {}
        self._bytes = 0

    def census(self, exactly: bool, pending_only: bool) -> Census:
        """List and read all; what has not changed is not read again, as far as it is kept."""
        census = Census()
        for stored in self._bucket.list_all(PENDING):
            if not add_sighting(census.sightings, stored):
                census.foreign.append(stored.key)
        self._forget_gone(census)
        items = [
            one for one in census.sightings.values() if not pending_only or not is_without_task(one)
        ]

        def resolve(one: Sighting) -> Standing | WrongState:
            return self._resolve(one, exactly)

        for start in range(0, len(items), _READ_AT_ONCE):
            lot = items[start : start + _READ_AT_ONCE]
            for one, stands in zip(lot, self._bucket.map(resolve, lot), strict=True):
                if isinstance(stands, NotForUs):
                    census.left_alone[one.task_id] = str(stands)
                elif isinstance(stands, WrongState):
                    census.damaged[one.task_id] = str(stands)
                else:
                    census.standings[one.task_id] = stands
        return census

    def _resolve(self, one: Sighting, exactly: bool) -> Standing | WrongState:
        listed = _versions(one)
        with self._lock:
            known = self._kept.get(one.task_id)
        if known is not None and known.versions == listed:
            return known.stands
        try:
            if exactly:
                stands = self._standings.now(one.task_id, one.place)
            else:
                stands = self._standings.listed(one)
        except WrongState as error:
            return error
        task, lease = stands.task, stands.lease or stands.leftover
        if (task and task.etag, lease and lease.etag) == listed:
            size = sum(stored.size for stored in (one.task, one.lease) if stored is not None)
            self._keep(one.task_id, _Kept(listed, stands, size))
        return stands

    def _keep(self, task_id: str, kept: _Kept) -> None:
        """Whoever comes first stays: the next census comes by in the same order."""
        with self._lock:
            self._drop(task_id)
            if len(self._kept) < KEPT_TASKS and self._bytes + kept.size <= KEPT_BYTES:
                self._kept[task_id] = kept
                self._bytes += kept.size

    def _forget_gone(self, census: Census) -> None:
        with self._lock:
            for task_id in self._kept.keys() - census.sightings.keys():
                self._drop(task_id)

    def _drop(self, task_id: str) -> None:
        kept = self._kept.pop(task_id, None)
        self._bytes -= 0 if kept is None else kept.size


def _versions(one: Sighting) -> tuple[str | None, str | None]:
    return one.task and one.task.etag, one.lease and one.lease.etag
