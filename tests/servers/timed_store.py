"""A store whose clock is in the test's hand, whatever serves it."""

from __future__ import annotations

from builtins import list as List
from collections.abc import Iterable

from dfq.ambient import Clock
from dfq.store import MAX_PAGE, Object, Page, RequestCounter, Store


class TimedStore:
    """Passes everything on, but tells times by ``clock``: when it was written, and what time it is.

    The clock's running counts, not what it shows: a worker's clock may jump, the store's does not.
    Times of objects are a second behind, as those of S3 may be that have no fraction.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._ahead = clock.wall() - clock.boot()
        self._written: dict[tuple[str, str], float] = {}

    @property
    def url(self) -> str:
        return self._store.url

    @property
    def requests(self) -> RequestCounter:
        return self._store.requests

    @property
    def conditional_delete(self) -> bool:
        return self._store.conditional_delete

    def create(self, key: str, body: bytes) -> str:
        return self._note(key, self._store.create(key, body))

    def replace(self, key: str, body: bytes, etag: str) -> str:
        return self._note(key, self._store.replace(key, body, etag))

    def put(self, key: str, body: bytes) -> str:
        return self._note(key, self._store.put(key, body))

    def read(self, key: str) -> Object | None:
        found = self._store.read(key)
        return None if found is None else found._replace(modified=self._when(key, found.etag))

    def list(self, prefix: str, after: str = "", limit: int = MAX_PAGE) -> Page:
        page = self._store.list(prefix, after, limit)
        entries = tuple(e._replace(modified=self._when(e.key, e.etag)) for e in page.entries)
        return Page(entries, page.next)

    def delete(self, key: str, etag: str | None = None) -> bool:
        return self._store.delete(key, etag)

    def delete_many(self, keys: Iterable[str]) -> None:
        self._store.delete_many(keys)

    def now(self) -> float:
        return self._ahead + self._clock.boot()

    def close(self) -> None:
        """Others use it too."""

    def keys(self) -> List[str]:
        """Every key there is."""
        return [entry.key for entry in self._store.list("").entries]

    def _note(self, key: str, etag: str) -> str:
        self._written[key, etag] = self.now()
        return etag

    def _when(self, key: str, etag: str) -> float:
        # Between a write and its note, another thread may read it: then it is new.
        return self._written.get((key, etag), self.now()) - 1.0
