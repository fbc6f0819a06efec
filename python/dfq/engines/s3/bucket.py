"""What every part of the engine is handed: the store, the clock, and how to read a task in it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from dfq.ambient import Chance, Clock, new_id
from dfq.engines.s3.bodies import LeaseFile, LeftAlone, TaskFile
from dfq.engines.s3.keys import lease_key, task_key
from dfq.engines.s3.tally import Tally
from dfq.engines.s3.vacancy import is_gone, occupy, vacate
from dfq.engines.s3.writes import Pause, Writes, Written
from dfq.policy import Policy
from dfq.store import MAX_PAGE, BodyTooLarge, Object, Store, Stored

T = TypeVar("T")
U = TypeVar("U")


class StoreClock:
    """The store's clock for the time of day, ours for the running of time.

    So a worker whose clock is a day off behaves like any other.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def wall(self) -> float:
        """Seconds since 1970, by the store; a little behind it, never ahead."""
        return self._store.now()

    def boot(self) -> float:
        """Seconds since boot, by this machine."""
        return self._clock.boot()


class Bucket:
    """One queue's place in a store."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        chance: Chance,
        policy: Policy,
        parallel: int,
        pause: Pause | None = None,
    ) -> None:
        self.store = store
        #: Ours, for people and for nothing else.
        self.own_clock = clock
        self.clock: Clock = StoreClock(store, clock)
        self.chance = chance
        self.policy = policy
        self.parallel = parallel
        self.writes = Writes(store, chance, pause)
        self.tally = Tally(store.requests, self.clock)
        self._session = ""
        self._pid = 0

    @property
    def session(self) -> str:
        """The name under which this process gives signs of life. A forked child is another."""
        pid = os.getpid()
        if self._pid != pid:
            self._session = new_id(self.clock, self.chance)
            self._pid = pid
        return self._session

    def read(self, key: str) -> Object | None:
        """What a key holds, unless it is empty."""
        found = self.store.read(key)
        return None if found is None or is_gone(found.body) else found

    def read_odd(self, key: str) -> Object | None:
        """What a key holds that queues can do without: nothing, if that is far too large."""
        try:
            return self.store.read(key)
        except BodyTooLarge:
            return None

    def has(self, key: str) -> bool:
        """Whether a key holds something."""
        try:
            return self.read(key) is not None
        except BodyTooLarge:
            return True

    def occupy(self, key: str, body: bytes) -> Written:
        """Write a key that is empty."""
        return occupy(self.store, self.writes, key, body)

    def vacate(self, key: str, etag: str) -> bool:
        """Empty a key that may be written again; False if it holds another version."""
        return vacate(self.store, self.writes, key, etag)

    def erase(self, key: str, etag: str) -> bool:
        """Delete what belongs to a completed task: nobody writes it again, so nothing is lost."""
        if self.store.conditional_delete:
            return self.writes.delete(key, etag)
        self.store.delete(key)
        return True

    def read_task(self, task_id: str, place: str) -> TaskFile | None:
        """The task.json there; raises Damaged or LeftAlone."""
        try:
            found = self.read(task_key(place))
        except BodyTooLarge as error:
            raise LeftAlone(f"{error}; delete it, or push something smaller") from None
        if found is None:
            return None
        return TaskFile.read(task_id, place, found.body, found.etag, found.modified)

    def read_lease(self, task_id: str, place: str) -> LeaseFile | None:
        """The lease.json there; one that is far too large is a damaged one."""
        key = lease_key(place)
        try:
            found = self.store.read(key)
        except BodyTooLarge as error:
            # Its version tells a listing: who ends this lease must name it.
            entries = self.store.list(key, "", 1).entries
            if not entries or entries[0].key != key:
                return None
            _, etag, modified, _ = entries[0]
            return LeaseFile(task_id, place, {}, etag, modified, str(error))
        if found is None:
            return None
        return LeaseFile.read(task_id, place, found.body, found.etag, found.modified)

    def list_all(self, prefix: str) -> Iterator[Stored]:
        """Every object whose key begins so, page by page."""
        after = ""
        while True:
            page = self.store.list(prefix, after, MAX_PAGE)
            yield from page.entries
            if page.next is None:
                return
            after = page.next

    def map(self, function: Callable[[T], U], items: Iterable[T]) -> Iterator[U]:
        """Call for each, several at once: a request is mostly waiting."""
        wanted = list(items)
        if self.parallel <= 1 or len(wanted) <= 1:
            yield from map(function, wanted)
            return
        with ThreadPoolExecutor(min(self.parallel, len(wanted)), "dfq-s3") as pool:
            yield from pool.map(function, wanted)
