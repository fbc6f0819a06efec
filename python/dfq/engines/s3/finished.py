"""Completed tasks: their records stay in lease.json for a while, then a hundred become one object.

A record is not folded before it is two minutes old. Until then it stands in the way of a copy of
its task.json that comes late; a copy that comes later still is recognised by its own date (see
:data:`dfq.engines.s3.applying.LATE_SECONDS`).
"""

from __future__ import annotations

import bisect
import itertools
import math
import threading
from array import array
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import orjson

from dfq.engines.s3.applying import KEPT_SECONDS
from dfq.engines.s3.bodies import LeaseFile, dumps, without_nulls
from dfq.engines.s3.bucket import Bucket
from dfq.engines.s3.fold_names import FoldName, Probe, name_of, probe_of, read_name
from dfq.engines.s3.keys import COMPLETED, failed_key, lease_key, task_key
from dfq.engines.s3.view import batches
from dfq.task import check_id

#: So many records go into one object, and no more bytes of them.
FOLD_RECORDS: Final = 100
FOLD_BYTES: Final = 4 << 20
#: The records of others are left to them for so long: they fold theirs when they sweep.
OTHERS_SECONDS: Final = 1800.0
#: The objects read last are kept, for records that are asked for again.
_KEPT_FOLDS: Final = 8


class Unfolded:
    """The records of this process that are not old enough to be folded. Safe from threads.

    What exceeds a few MiB of them is not kept, but read again when its time has come.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._records: deque[tuple[float, LeaseFile, int]] = deque()
        self._bytes = 0

    def add(self, lease: LeaseFile, finished_at: float, size: int) -> None:
        """A task was completed."""
        with self._lock:
            if self._bytes + size > 2 * FOLD_BYTES:
                lease, size = replace(lease, fields={}), 0
            self._records.append((finished_at, lease, size))
            self._bytes += size

    def due(self, now: float) -> int:
        """How many are old enough; a hundred is as good as more."""
        with self._lock:
            latest = now - KEPT_SECONDS
            first = itertools.islice(self._records, FOLD_RECORDS)
            return sum(1 for _ in itertools.takewhile(lambda one: one[0] <= latest, first))

    def take(self, now: float) -> list[LeaseFile]:
        """Those that are old enough; they are forgotten here."""
        taken = []
        with self._lock:
            while self._records and self._records[0][0] <= now - KEPT_SECONDS:
                _, lease, size = self._records.popleft()
                self._bytes -= size
                taken.append(lease)
        return taken


class Finished:
    """The records of completed tasks that are folded already."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._lock = threading.Lock()
        self._names: dict[str, FoldName] = {}
        # fold that was read -> the hashes of its ids, in order
        self._index: dict[str, array[int]] = {}
        self._bodies: OrderedDict[str, list[dict[str, Any]]] = OrderedDict()

    def find(self, task_id: str) -> dict[str, Any] | None:
        """The record of a completed task; costs a listing, and hardly a read more than its own."""
        for record in self._which_may_have([task_id], newest_first=True):
            if record["task_id"] == task_id:
                return record
        return None

    def known(self, task_ids: Sequence[str]) -> set[str]:
        """Which of these are completed and folded, with one listing."""
        if not task_ids:
            return set()
        wanted = set(task_ids)
        return {one["task_id"] for one in self._which_may_have(task_ids)} & wanted

    def count(self) -> int:
        """How many there are, by the names of the objects alone."""
        return sum(name.count or 0 for name in self._folds().values())

    def damaged(self) -> dict[str, int]:
        """The objects that hold fewer records than their names say, and how many are missing."""
        missing = {}
        for key, name in self._folds().items():
            if name.count and (count := name.count - len(self._records(key))) > 0:
                missing[key] = count
        return missing

    def all(self) -> Iterator[dict[str, Any]]:
        """Every record once. A crash between folding and tidying up may have left one twice."""
        seen: set[int] = set()
        for record in self._read(self._folds()):
            mark = probe_of(record["task_id"]).mark
            if mark not in seen:
                seen.add(mark)
                yield record

    def fold(self, leases: Sequence[LeaseFile]) -> int:
        """Put these records into one object, then let their leases go; how many there were."""
        done = 0
        for lot in _lots(filter(None, map(self._whole, leases))):
            lines = b"".join(dumps(lease.fields) + b"\n" for lease in lot)
            key = name_of([lease.fields for lease in lot])
            if not self._bucket.writes.create(key, lines).won:
                # Somebody else did the same, or something that looks like it: we see to that.
                there = {record.get("lease_id", "") for record in self._records(key)}
                lot = [lease for lease in lot if lease.lease_id in there]
            for _ in self._bucket.map(self._tidy, lot):
                done += 1
        return done

    def fold_for_others(self, leases: Sequence[LeaseFile]) -> int:
        """The same for whoever did not come to it, or only to a part of it.

        Workers that do so at the same time take the same records together.
        """
        if not leases:
            return 0
        ended = [lease.ended_at for lease in leases]
        records = self._which_may_have([one.task_id for one in leases], ended)
        there = {(one["task_id"], one.get("lease_id", "")) for one in records}
        folded = [one for one in leases if (one.task_id, one.lease_id) in there]
        for _ in self._bucket.map(self._tidy, folded):
            pass
        rest = [one for one in leases if (one.task_id, one.lease_id) not in there]
        rest.sort(key=lambda one: (one.modified, one.task_id))
        return len(folded) + self.fold(rest)

    def _whole(self, lease: LeaseFile) -> LeaseFile | None:
        """A record whose fields were not kept is read again; None if it is gone."""
        if lease.fields:
            return lease
        found = self._bucket.read_lease(lease.task_id, lease.place)
        return found if found is not None and found.etag == lease.etag else None

    def remove(self, doomed: Callable[[dict[str, Any]], bool], latest: float = math.inf) -> int:
        """Delete the records that are asked for; how many there were.

        None that ended later than ``latest`` is asked for.
        """
        removed: set[str] = set()
        for key, name in self._folds().items():
            if name.first is not None and name.first > latest:
                continue
            records = self._records(key)
            gone = {record["task_id"] for record in records if doomed(record)}
            if not gone:
                continue
            kept = [record for record in records if record["task_id"] not in gone]
            if kept:
                lines = b"".join(orjson.dumps(record) + b"\n" for record in kept)
                self._bucket.writes.create(name_of(kept), lines)
            self._bucket.store.delete(key)
            removed |= gone
        return len(removed)

    def drop(self, latest: float) -> int:
        """Delete the objects that were written by then, unread; how many records there were.

        Whatever is in one was completed before it was written.
        """
        doomed = [one.key for one in self._bucket.list_all(COMPLETED) if one.modified <= latest]
        self._bucket.store.delete_many(doomed)
        return sum(read_name(key).count or 0 for key in doomed)

    def _tidy(self, lease: LeaseFile) -> None:
        # Copies of task.json that came late have the ETags of the versions they are copies of.
        for etag in {lease.fields.get("task_etag"), lease.fields.get("first_etag")} - {None}:
            self._bucket.erase(task_key(lease.place), str(etag))
        if lease.fields["task"].get("requeued"):
            self._bucket.store.delete(failed_key(lease.task_id))
        self._bucket.erase(lease_key(lease.place), lease.etag)

    def _folds(self) -> dict[str, FoldName]:
        """The objects there are, and what their names say."""
        keys = [stored.key for stored in self._bucket.list_all(COMPLETED)]
        with self._lock:
            before = self._names
            self._names = {key: before.get(key) or read_name(key) for key in keys}
            for key in [key for key in self._index if key not in self._names]:
                del self._index[key]
                self._bodies.pop(key, None)
            return self._names

    def _which_may_have(
        self,
        task_ids: Sequence[str],
        ended: Sequence[float] | None = None,
        *,
        newest_first: bool = False,
    ) -> Iterator[dict[str, Any]]:
        """The records of the objects that may hold these tasks, which ended then."""
        moments = ended or (None,) * len(task_ids)
        wanted = list(zip(map(probe_of, task_ids), moments, strict=True))
        folds = list(self._folds().items())
        if newest_first:
            folds.reverse()
        return self._read(
            key for key, name in folds if any(self._may_have(key, name, *one) for one in wanted)
        )

    def _may_have(self, key: str, name: FoldName, probe: Probe, ended_at: float | None) -> bool:
        if ended_at is not None and not name.may_span(ended_at):
            return False
        with self._lock:
            hashes = self._index.get(key)
        if hashes is None:
            return name.may_have(probe)
        place = bisect.bisect_left(hashes, probe.mark)
        return place < len(hashes) and hashes[place] == probe.mark

    def _read(self, keys: Iterable[str]) -> Iterator[dict[str, Any]]:
        """The records of these, several objects at once."""
        for lot in batches(iter(keys), max(1, self._bucket.parallel)):
            for records in self._bucket.map(self._records, lot):
                yield from records

    def _records(self, key: str) -> list[dict[str, Any]]:
        with self._lock:
            if key in self._bodies:
                self._bodies.move_to_end(key)
                return self._bodies[key]
        found = self._bucket.read_odd(key)
        records = [] if found is None else list(_read(found.body))
        with self._lock:
            self._index[key] = array("Q", sorted(probe_of(r["task_id"]).mark for r in records))
            self._bodies[key] = records
            while len(self._bodies) > _KEPT_FOLDS:
                self._bodies.popitem(last=False)
        return records


def _read(body: bytes) -> Iterator[dict[str, Any]]:
    for line in body.splitlines():
        try:
            record = without_nulls(orjson.loads(line))
            record.setdefault("state", "completed")
            LeaseFile(check_id(record["task_id"]), "", record, "", 0.0).verified()
        except (ValueError, TypeError, KeyError, AttributeError):
            # A line that somebody damaged hides nothing but itself; `dfq doctor` counts them.
            continue
        if record["state"] == "completed":
            yield record


def _lots(leases: Iterable[LeaseFile]) -> Iterator[list[LeaseFile]]:
    lot: list[LeaseFile] = []
    size = 0
    for lease in leases:
        length = len(dumps(lease.fields))
        if lot and (len(lot) == FOLD_RECORDS or size + length > FOLD_BYTES):
            yield lot
            lot, size = [], 0
        lot.append(lease)
        size += length
    if lot:
        yield lot
