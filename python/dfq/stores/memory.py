"""A store in memory, for tests and simulation. With a plan of faults it has S3's bad days.

Like S3, it gives times in whole seconds and names a version by the MD5 of its body. The clock it
is handed is the store's own clock, which nobody else needs to share.
"""

from __future__ import annotations

import hashlib
import threading
from bisect import bisect_left, bisect_right, insort

# Within a store `list` is a verb.
from builtins import list as List
from collections.abc import Callable, Iterable
from typing import TypeVar

from dfq.ambient import SYSTEM_CLOCK, Clock
from dfq.errors import QueueUnavailable, StoreBusy, StoreUnsure
from dfq.store import (
    MAX_BODY_BYTES,
    MAX_PAGE,
    BodyTooLarge,
    Changed,
    Exists,
    Lost,
    Missing,
    Object,
    Page,
    RequestCounter,
    Stored,
    check_body,
    check_key,
    check_limit,
    check_prefix,
)
from dfq.stores.faults import Fault, FaultPlan
from dfq.stores.files import new_file, open_file

T = TypeVar("T")


class MemoryStore:
    """Bodies in a dict. Give several workers the same one."""

    conditional_delete = True

    def __init__(
        self, name: str = "", *, clock: Clock = SYSTEM_CLOCK, faults: FaultPlan | None = None
    ) -> None:
        self.url = f"memory://{name}"
        self.requests = RequestCounter()
        self.faults = faults
        self._clock = clock
        self._objects: dict[str, Object] = {}
        self._keys: List[str] = []
        self._lock = threading.Lock()
        self._served = 0
        self._under_way: List[tuple[int, Callable[[], object]]] = []

    def create(self, key: str, body: bytes) -> str:
        """Store a body under a new key."""
        check_key(key), check_body(key, body)
        return self._write("put", key, lambda: self._create(key, body), conditional=True)

    def replace(self, key: str, body: bytes, etag: str) -> str:
        """Store a body in place of the version named."""
        check_key(key), check_body(key, body)
        return self._write("put", key, lambda: self._replace(key, body, etag), conditional=True)

    def put(self, key: str, body: bytes) -> str:
        """Store a body whatever was there."""
        check_key(key), check_body(key, body)
        return self._write("put", key, lambda: self._put(key, body), conditional=False)

    def read(self, key: str) -> Object | None:
        """The object, or None."""
        check_key(key)
        found = self._look("get", key, lambda: self._objects.get(key))
        if found is not None and len(found.body) > MAX_BODY_BYTES:
            raise BodyTooLarge(f"{self.url}/{key} has more than {MAX_BODY_BYTES:,} bytes")
        return found

    def fetch(self, key: str, path: str) -> Stored | None:
        """Copy an object into a new file."""
        check_key(key)
        found = self._look("get", key, lambda: self._objects.get(key))
        if found is None:
            return None
        with new_file(path) as file:
            file.write(found.body)
        return Stored(key, found.etag, found.modified, len(found.body))

    def create_from(self, key: str, path: str) -> str:
        """Store a file's bytes under a new key."""
        check_key(key)
        body = _bytes_of(path)
        return self._write("put", key, lambda: self._create(key, body), conditional=True)

    def replace_from(self, key: str, path: str, etag: str) -> str:
        """Store a file's bytes in place of the version named."""
        check_key(key)
        body = _bytes_of(path)
        return self._write("put", key, lambda: self._replace(key, body, etag), conditional=True)

    def list(self, prefix: str, after: str = "", limit: int = MAX_PAGE) -> Page:
        """The keys with this prefix after that key."""
        check_prefix(prefix), check_limit(limit)
        return self._look("list", prefix, lambda: self._list(prefix, after, limit))

    def delete(self, key: str, etag: str | None = None) -> bool:
        """Delete a key, or only the version named."""
        check_key(key)
        conditional = etag is not None
        return self._write("delete", key, lambda: self._delete(key, etag), conditional=conditional)

    def delete_many(self, keys: Iterable[str]) -> None:
        """Delete keys, in batches as S3 has them."""
        wanted = [check_key(key) for key in keys]
        for start in range(0, len(wanted), MAX_PAGE):
            batch = wanted[start : start + MAX_PAGE]

            def carry_out(batch: List[str] = batch) -> None:
                for key in batch:
                    self._delete(key, None)

            self._write("delete", batch[0], carry_out, conditional=False)

    def now(self) -> float:
        """The store's clock."""
        return float(int(self._clock.wall()))

    def close(self) -> None:
        """Nothing is held."""

    def deliver_all(self) -> int:
        """Carry out every request that is still under way; how many there were."""
        with self._lock:
            under_way, self._under_way = self._under_way, []
            for _, carry_out in under_way:
                _deliver(carry_out)
            return len(under_way)

    def _look(self, kind: str, what: str, carry_out: Callable[[], T]) -> T:
        with self._lock:
            fault = self._begin(kind)
            if fault == "slow_down":
                raise StoreBusy(f"{self.url} is busy (503) and did not read {what}; try again")
            if fault in ("late", "lost", "lost_answer"):
                raise QueueUnavailable(f"{self.url} did not answer about {what}; try again")
            return carry_out()

    def _write(self, kind: str, what: str, carry_out: Callable[[], T], *, conditional: bool) -> T:
        with self._lock:
            fault = self._begin(kind)
            if fault == "slow_down" or (fault == "conflict" and conditional):
                raise StoreBusy(f"{self.url} is busy and did not write {what}; try again")
            if fault in ("late", "duplicated"):
                assert self.faults is not None
                self._under_way.append((self._served + self.faults.delay(), carry_out))
            if fault == "lost_answer":
                _deliver(carry_out)
            if fault in ("late", "lost", "lost_answer"):
                raise StoreUnsure(
                    f"{self.url} did not answer: {what} may or may not be written; read it again"
                )
            return carry_out()

    def _begin(self, kind: str) -> Fault | None:
        """Count the request, carry out the late ones that arrive before it, and draw its fault."""
        self.requests.add(kind)
        self._served += 1
        if self._under_way:
            due = [one for one in self._under_way if one[0] <= self._served]
            self._under_way = [one for one in self._under_way if one[0] > self._served]
            for _, carry_out in due:
                _deliver(carry_out)
        return None if self.faults is None else self.faults.draw()

    def _create(self, key: str, body: bytes) -> str:
        if key in self._objects:
            raise Exists(key)
        return self._put(key, body)

    def _replace(self, key: str, body: bytes, etag: str) -> str:
        there = self._objects.get(key)
        if there is None:
            raise Missing(key)
        if there.etag != etag:
            raise Changed(key)
        return self._put(key, body)

    def _put(self, key: str, body: bytes) -> str:
        etag = hashlib.md5(body, usedforsecurity=False).hexdigest()
        if key not in self._objects:
            insort(self._keys, key)
        self._objects[key] = Object(body, etag, self.now())
        return etag

    def _delete(self, key: str, etag: str | None) -> bool:
        there = self._objects.get(key)
        if there is None:
            return False
        if etag is not None and there.etag != etag:
            raise Changed(key)
        del self._objects[key]
        del self._keys[bisect_right(self._keys, key) - 1]
        return True

    def _list(self, prefix: str, after: str, limit: int) -> Page:
        # Keys with a prefix stand together, from the prefix itself on.
        start = max(bisect_left(self._keys, prefix), bisect_right(self._keys, after))
        entries: List[Stored] = []
        for key in self._keys[start : start + limit + 1]:
            if not key.startswith(prefix):
                break
            if len(entries) == limit:
                return Page(tuple(entries), entries[-1].key)
            there = self._objects[key]
            entries.append(Stored(key, there.etag, there.modified, len(there.body)))
        return Page(tuple(entries), None)


def _deliver(carry_out: Callable[[], object]) -> None:
    """Carry out a request whose answer nobody will read."""
    try:
        carry_out()
    except Lost:
        return


def _bytes_of(path: str) -> bytes:
    with open_file(path) as file:
        return file.read()
