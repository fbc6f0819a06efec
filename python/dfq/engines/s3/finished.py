"""Completed tasks: their records stay in lease.json for a while, then a hundred become one object.

A record is not folded before it is two minutes old. Until then it stands in the way of a copy of
its task.json that comes late; a copy that comes later still is recognised by its own date (see
:data:`dfq.engines.s3.applying.LATE_SECONDS`).
"""

from __future__ import annotations

import bisect
import hashlib
import itertools
import re
import threading
from array import array
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import orjson

from dfq.engines.s3.applying import KEPT_SECONDS
from dfq.engines.s3.bodies import LeaseFile, dumps, stamp
from dfq.engines.s3.bucket import Bucket
from dfq.engines.s3.keys import COMPLETED, failed_key, lease_key, task_key

#: So many records go into one object, and no more bytes of them.
FOLD_RECORDS: Final = 100
FOLD_BYTES: Final = 4 << 20
#: The records of others are left to them for so long: they fold theirs when they sweep.
OTHERS_SECONDS: Final = 1800.0
#: The objects read last are kept, for records that are asked for again.
_KEPT_FOLDS: Final = 8

_NAME = re.compile(r"completed/\d{4}-\d\d-\d\d/(\d+)-[0-9a-z]+-[0-9a-f]+-(\d+)\.jsonl", re.ASCII)


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
        # fold -> the hashes of its ids, in order
        self._index: dict[str, array[int]] = {}
        self._bodies: OrderedDict[str, list[dict[str, Any]]] = OrderedDict()

    def find(self, task_id: str) -> dict[str, Any] | None:
        """The record of a completed task; costs a listing, and a read of what is new in it."""
        wanted = _hash(task_id)
        for key in reversed(self._folds()):
            if self._may_have(key, wanted):
                for record in self._records(key):
                    if record["task_id"] == task_id:
                        return record
        return None

    def known(self, task_ids: Sequence[str]) -> set[str]:
        """Which of these are completed and folded, with one listing."""
        if not task_ids:
            return set()
        hashes = {task_id: _hash(task_id) for task_id in task_ids}
        found = set()
        for key in self._folds():
            for task_id, wanted in hashes.items():
                if task_id not in found and self._may_have(key, wanted):
                    ids = {record["task_id"] for record in self._records(key)}
                    found |= ids & hashes.keys()
        return found

    def count(self) -> int:
        """How many there are, by the names of the objects alone."""
        matches = (_NAME.fullmatch(key) for key in self._folds())
        return sum(int(match[2]) for match in matches if match)

    def damaged(self) -> dict[str, int]:
        """The objects that hold fewer records than their names say, and how many are missing."""
        missing = {}
        for key in self._folds():
            match = _NAME.fullmatch(key)
            if match and (count := int(match[2]) - len(self._records(key))) > 0:
                missing[key] = count
        return missing

    def all(self) -> Iterator[dict[str, Any]]:
        """Every record once. A crash between folding and tidying up may have left one twice."""
        seen: set[int] = set()
        for key in self._folds():
            for record in self._records(key):
                mark = _hash(record["task_id"])
                if mark not in seen:
                    seen.add(mark)
                    yield record

    def fold(self, leases: Sequence[LeaseFile]) -> int:
        """Put these records into one object, then let their leases go; how many there were."""
        done = 0
        for lot in _lots(filter(None, map(self._whole, leases))):
            lines = b"".join(dumps(lease.fields) + b"\n" for lease in lot)
            now = self._bucket.clock.wall()
            key = self._name(now, len(lot))
            self._bucket.writes.create(key, lines)
            for _ in self._bucket.map(self._tidy, lot):
                done += 1
        return done

    def _whole(self, lease: LeaseFile) -> LeaseFile | None:
        """A record whose fields were not kept is read again; None if it is gone."""
        if lease.fields:
            return lease
        found = self._bucket.read_lease(lease.task_id, lease.place)
        return found if found is not None and found.etag == lease.etag else None

    def remove(self, doomed: Callable[[dict[str, Any]], bool]) -> int:
        """Delete the records that are asked for; how many there were."""
        removed: set[str] = set()
        for key in self._folds():
            records = self._records(key)
            gone = {record["task_id"] for record in records if doomed(record)}
            if not gone:
                continue
            kept = [record for record in records if record["task_id"] not in gone]
            if kept:
                lines = b"".join(orjson.dumps(record) + b"\n" for record in kept)
                self._bucket.writes.create(self._name(self._bucket.clock.wall(), len(kept)), lines)
            self._bucket.store.delete(key)
            removed |= gone
        return len(removed)

    def drop(self, latest: float) -> int:
        """Delete the objects that were written by then, unread; how many records there were.

        Whatever is in one was completed before it was written.
        """
        doomed = [one.key for one in self._bucket.list_all(COMPLETED) if one.modified <= latest]
        self._bucket.store.delete_many(doomed)
        matches = map(_NAME.fullmatch, doomed)
        return sum(int(match[2]) for match in matches if match)

    def _tidy(self, lease: LeaseFile) -> None:
        # Copies of task.json that came late have the ETags of the versions they are copies of.
        for etag in {lease.fields.get("task_etag"), lease.fields.get("first_etag")} - {None}:
            self._bucket.erase(task_key(lease.place), str(etag))
        if lease.fields["task"].get("requeued"):
            self._bucket.store.delete(failed_key(lease.task_id))
        self._bucket.erase(lease_key(lease.place), lease.etag)

    def _name(self, now: float, count: int) -> str:
        bucket = self._bucket
        mark = f"{bucket.session}-{bucket.chance.bits(32):08x}"
        return f"{COMPLETED}{stamp(now)[:10]}/{int(now * 1000):015d}-{mark}-{count}.jsonl"

    def _folds(self) -> list[str]:
        keys = [stored.key for stored in self._bucket.list_all(COMPLETED)]
        with self._lock:
            there = set(keys)
            for key in [key for key in self._index if key not in there]:
                del self._index[key]
                self._bodies.pop(key, None)
        return keys

    def _may_have(self, key: str, wanted: int) -> bool:
        with self._lock:
            hashes = self._index.get(key)
        if hashes is None:
            self._records(key)
            with self._lock:
                hashes = self._index.get(key, array("Q"))
        place = bisect.bisect_left(hashes, wanted)
        return place < len(hashes) and hashes[place] == wanted

    def _records(self, key: str) -> list[dict[str, Any]]:
        with self._lock:
            if key in self._bodies:
                self._bodies.move_to_end(key)
                return self._bodies[key]
        found = self._bucket.store.read(key)
        records = [] if found is None else list(_read(found.body))
        with self._lock:
            self._index[key] = array("Q", sorted(_hash(r["task_id"]) for r in records))
            self._bodies[key] = records
            while len(self._bodies) > _KEPT_FOLDS:
                self._bodies.popitem(last=False)
        return records


def _read(body: bytes) -> Iterator[dict[str, Any]]:
    for line in body.splitlines():
        try:
            record = orjson.loads(line)
            _ = record["task_id"], record["task"]["payload"], record["finished_at"]
        except (ValueError, TypeError, KeyError):
            # A line that somebody damaged hides nothing but itself; `dfq doctor` counts them.
            continue
        yield record


def _hash(task_id: str) -> int:
    return int.from_bytes(hashlib.sha256(task_id.encode()).digest()[:8], "big")


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
