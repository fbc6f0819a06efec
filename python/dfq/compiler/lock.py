"""The advisory lock on a shard: it spares two compilers the same work, and protects nothing.

A lock is an object with the name of its holder, a nonce and the moment it ends. It is made by
create, renewed and taken over by replace on the version that was read, so of several takers one
wins. Whether it is over is judged by the store's clock alone: it says how long it lives, at most
an hour, and that counts from when the store received it. What is no lock at all is over as soon as
it is as old as a lock may be.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import orjson

from dfq.compiler.paths import lock_key
from dfq.compiler.records import iso, seconds_of
from dfq.compiler.site import Site
from dfq.errors import QueueBusy, QueueUnavailable
from dfq.store import Lost, Object

LOCK_SECONDS: Final = 300.0
#: A lock that says it lives longer, or comes from a later time, is not believed.
_LONGEST_SECONDS: Final = 3600.0
#: Stores tell times in whole seconds.
_GRACE_SECONDS: Final = 1.0


class Lock:
    """A lock that is held."""

    def __init__(
        self, site: Site, shard: str, nonce: str, created_at: float, seconds: float
    ) -> None:
        self.shard = shard
        #: Somebody took it over: what is done under it may be done twice.
        self.lost = False
        self._site = site
        self._key = lock_key(shard)
        self._nonce = nonce
        self._created_at = created_at
        self._seconds = seconds
        self._etag = ""
        self._mutex = threading.Lock()

    def body(self, now: float) -> bytes:
        """What the store is to hold, if it begins or is renewed now."""
        return orjson.dumps(
            {
                "dfq": 1,
                "worker_id": self._site.worker_id,
                "nonce": self._nonce,
                "created_at": iso(self._created_at),
                "renewed_at": iso(now),
                "expires_at": iso(now + self._seconds),
            }
        )

    def took(self, etag: str) -> Lock:
        """It is ours, as this version."""
        self._etag = etag
        return self

    def renew(self) -> None:
        """Make it live on; sets ``lost`` if it is another's by now."""
        with self._mutex:
            if self.lost or not self._etag:
                return
            written = self._site.writes.replace(self._key, self.body(self._site.wall()), self._etag)
            self._etag, self.lost = written.etag, not written.won

    def release(self) -> None:
        """Delete it, if it is ours still. If that fails it ends by itself."""
        with self._mutex, suppress(QueueUnavailable, QueueBusy, Lost):
            etag, self._etag = self._etag, ""
            if self.lost or not etag:
                return
            _delete(self._site, self._key, etag)


def acquire(
    site: Site, shard: str, *, seen: bool = False, seconds: float = LOCK_SECONDS
) -> Lock | None:
    """Take the lock on a shard, if it is free or over. ``seen``: it was in a listing just now."""
    now = site.wall()
    key, lock = lock_key(shard), Lock(site, shard, site.writes.nonce(), now, seconds)
    if not seen:
        written = site.writes.create(key, lock.body(now))
        if written.won:
            return lock.took(written.etag)
    found = site.store.read(key)
    if found is None:
        written = site.writes.create(key, lock.body(now))
    elif is_over(found, site.wall()):
        written = site.writes.replace(key, lock.body(site.wall()), found.etag)
    else:
        return None
    return lock.took(written.etag) if written.won else None


def is_over(found: Object, now: float) -> bool:
    """Whether a lock, whatever it holds, binds nobody any more."""
    if found.modified > now + _LONGEST_SECONDS:
        return True
    return now > _end_of(found) + _GRACE_SECONDS


def _end_of(found: Object) -> float:
    """Its length is what its holder says; when it began, the store knows better."""
    try:
        value = orjson.loads(found.body)
        ends = seconds_of(value["expires_at"])
        begun = seconds_of(value.get("renewed_at")) or found.modified
    except (ValueError, TypeError, LookupError, AttributeError):
        ends = None
    if ends is None:
        return found.modified + LOCK_SECONDS
    return found.modified + min(ends - begun, _LONGEST_SECONDS)


def sweep(site: Site, shard: str) -> bool:
    """Delete a lock that is over, for a shard that nobody has anything to do with; whether."""
    found = site.store.read(lock_key(shard))
    if found is None or not is_over(found, site.wall()):
        return False
    _delete(site, lock_key(shard), found.etag)
    return True


def _delete(site: Site, key: str, etag: str) -> None:
    """Delete this version of a lock."""
    if site.store.conditional_delete:
        site.writes.delete(key, etag)
        return
    # Between these two it may become another's, who then merely has no lock.
    found = site.store.read(key)
    if found is not None and found.etag == etag:
        site.store.delete(key)


class Keeper:
    """Renews the locks that are held, as long as the block lasts."""

    def __init__(
        self,
        every_seconds: float = LOCK_SECONDS / 3,
        on_error: Callable[[Exception], None] = lambda _error: None,
    ) -> None:
        self._every = every_seconds
        self._on_error = on_error
        self._mutex = threading.Lock()
        self._held: set[Lock] = set()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def hold(self, lock: Lock) -> None:
        """Keep this one from now on."""
        with self._mutex:
            self._held.add(lock)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="dfq-locks", daemon=True)
                self._thread.start()

    def let_go(self, lock: Lock) -> None:
        """Renew it no more, and delete it."""
        with self._mutex:
            self._held.discard(lock)
        lock.release()

    def renew_all(self) -> None:
        """Renew what is held, once."""
        with self._mutex:
            held = list(self._held)
        for lock in held:
            try:
                lock.renew()
            except (QueueUnavailable, QueueBusy) as error:
                # It lives for two more turns.
                self._on_error(error)

    def _run(self) -> None:
        while not self._ended.wait(self._every):
            self.renew_all()

    def __enter__(self) -> Keeper:
        return self

    def __exit__(self, *exc: object) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join(10.0)
