"""A corner of a store to try things in, and the patience that a bad network needs.

A missing answer says nothing about the store. So what is busy is asked again, and a write that
may or may not have been done is told by the nonce in its body. No key is ever used for a second
time after its end: a request that arrives late can't be taken for a mistake of the store.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Literal, NamedTuple, TypeVar

from dfq.ambient import Chance, Clock
from dfq.errors import QueueUnavailable, StoreBusy, StoreRefused, StoreUnsure
from dfq.store import Lost, Object, Page, Store

T = TypeVar("T")

#: All that certifying writes begins so.
SCRATCH_PREFIX: Final = "certify/"
#: What others left there is deleted when it is older.
_LEFT_OVER_SECONDS = 86_400.0

_TRIES = 8
_PATIENCE_SECONDS = 30.0
_FIRST_WAIT_SECONDS = 0.01
_LONGEST_WAIT_SECONDS = 1.0

#: "doubtful": told that it lost, or nothing, after an earlier try that got no answer.
Told = Literal["won", "lost", "doubtful"]


class Wrong(Exception):
    """The store got something wrong: a sentence that says what was expected and what came."""


class Outcome(NamedTuple):
    """What a writer was told."""

    told: Told
    #: Of the version it wrote, if it won.
    etag: str = ""


class Scratch:
    """Keys nobody else has, in a store that may be busy or out of reach for a moment."""

    def __init__(self, store: Store, chance: Chance, clock: Clock) -> None:
        self.store = store
        self._chance = chance
        self.clock = clock
        #: What the keys here begin with; nobody else's do.
        self.prefix = f"{SCRATCH_PREFIX}{chance.bits(80):020x}/"
        self._made: dict[str, None] = {}
        # Nothing ever sets it: a wait that lasts its timeout.
        self._never = threading.Event()

    def key(self, name: str) -> str:
        """A key of one's own; it is deleted at the end."""
        key = self.prefix + name
        self._made[key] = None
        return key

    def body(self) -> bytes:
        """A body nobody else has. All have one length: an ETag made of the size shows."""
        return b'{"nonce":"%032x"}' % self._chance.bits(128)

    def create(self, key: str, body: bytes) -> str | None:
        """The ETag, or None if the store says that the key exists."""
        return self._settled(key, body, self.attempt(lambda: self.store.create(key, body)))

    def replace(self, key: str, body: bytes, etag: str) -> str | None:
        """The new ETag, or None if the store says that another version is there, or none."""
        return self._settled(key, body, self.attempt(lambda: self.store.replace(key, body, etag)))

    def make(self, key: str) -> tuple[bytes, str]:
        """Create a key that nobody has; its body and ETag."""
        body = self.body()
        etag = self.create(key, body)
        if etag is None:
            raise Wrong("create: a key that nobody had was told to exist")
        return body, etag

    def renew(self, key: str, etag: str) -> tuple[bytes, str]:
        """Replace a version by a newer one; its body and ETag."""
        body = self.body()
        new = self.replace(key, body, etag)
        if new is None:
            raise Wrong("replace: a version was not replaced though its own ETag was named")
        return body, new

    def read_back(self, key: str, body: bytes) -> Object:
        """The object that was just written."""
        there = self.read(key)
        if there is None or there.body != body:
            raise Wrong("read: what was just written was not read back at once")
        return there

    def read(self, key: str) -> Object | None:
        """The object, or None."""
        return self.patiently(lambda: self.store.read(key))

    def body_of(self, key: str) -> bytes | None:
        """The body, or None."""
        there = self.read(key)
        return None if there is None else there.body

    def list(self, prefix: str, after: str = "", limit: int = 1000) -> Page:
        """A page of a listing."""
        return self.patiently(lambda: self.store.list(prefix, after, limit))

    def attempt(self, write: Callable[[], str | bool]) -> Outcome:
        """Carry out a conditional write, as often as it takes to be told something."""
        doubtful = False

        def once() -> Outcome:
            nonlocal doubtful
            try:
                done = write()
            except Lost:
                done = False
            except StoreUnsure:
                doubtful = True
                raise
            if done:
                return Outcome("won", done if isinstance(done, str) else "")
            return Outcome("doubtful" if doubtful else "lost")

        return self.patiently(once)

    def patiently(self, call: Callable[[], T]) -> T:
        """Call again while the store is busy or out of reach, for a bounded while."""
        deadline = self.clock.boot() + _PATIENCE_SECONDS
        for tries in range(1, _TRIES):
            try:
                return call()
            except StoreRefused:
                raise
            except (StoreBusy, QueueUnavailable):
                if self.clock.boot() >= deadline:
                    raise
            longest = min(_LONGEST_WAIT_SECONDS, _FIRST_WAIT_SECONDS * 2**tries)
            self._never.wait(self._chance.uniform(0.0, longest))
        return call()

    def clear(self) -> None:
        """Delete all that was made, and what a certification that was cut short left long ago.

        What can't be deleted now is left to the next one.
        """
        with suppress(StoreBusy, QueueUnavailable):
            self.patiently(lambda: self.store.delete_many(self._made))
            old = self.store.now() - _LEFT_OVER_SECONDS
            left = [
                entry.key
                for entry in self.list(SCRATCH_PREFIX).entries
                # A store that lists what it was not asked for must not cost anybody a task.
                if entry.key.startswith(SCRATCH_PREFIX) and entry.modified < old
            ]
            self.patiently(lambda: self.store.delete_many(left))

    def _settled(self, key: str, body: bytes, outcome: Outcome) -> str | None:
        if outcome.told == "won":
            return outcome.etag
        there = self.read(key) if outcome.told == "doubtful" else None
        return there.etag if there is not None and there.body == body else None
