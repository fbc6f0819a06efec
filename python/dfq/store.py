"""What a store can do: the few primitives under every engine that keeps its queue elsewhere.

A store holds bodies under keys. Every condition is checked and obeyed in one step by the store
itself: of all callers that create a key, or replace or delete the same version of it, one wins.
A version is named by its ETag; two versions with the same body may have the same ETag, so whoever
compares puts a nonce into every body.

After a write there are four kinds of bad news, and each asks for something else:

- :class:`Lost` (:class:`Exists`, :class:`Changed`, :class:`Missing`): the condition did not hold;
  nothing was done.
- :class:`~dfq.errors.StoreBusy`: nothing was done; try again later.
- :class:`~dfq.errors.StoreUnsure`: nobody knows. It may also be done later: the request may still
  be on its way. Read the key and compare the nonce.
- any other :class:`~dfq.errors.QueueUnavailable`: nothing was done.
"""

from __future__ import annotations

import re
import threading

# Within a store `list` is a verb.
from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol

from dfq.errors import DfqError

#: No body may be larger, coming or going; what is larger goes from and into files.
MAX_BODY_BYTES: Final = 16 * 1024 * 1024
#: What S3 allows for a key is 1,024 bytes; the rest is left to the prefix of the store.
MAX_KEY_LENGTH: Final = 800
#: The times of a store may be off by so much from one answer to the next: they have no fraction.
#: A store that is further off is refused, and so much is granted to every lease.
CLOCK_SECONDS: Final = 1.0
#: A page of a listing holds no more, and a batch of deletes neither.
MAX_PAGE: Final = 1000

_SEGMENT = r"(?!\.{1,2}(?:/|\Z))[A-Za-z0-9._=+@~-]+"
_KEY = re.compile(rf"{_SEGMENT}(?:/{_SEGMENT})*", re.ASCII)
_PREFIX = re.compile(r"[A-Za-z0-9._=+@~/-]*", re.ASCII)


class Lost(DfqError, RuntimeError):
    """The condition of a write did not hold: somebody else was there. Nothing was changed."""


class Exists(Lost):
    """The key to be created is there already."""

    def __init__(self, key: str) -> None:
        super().__init__(f"{key} exists already; nothing was changed")
        self.key = key


class Changed(Lost):
    """The key holds another version than the one named. Some stores say so of a missing key."""

    def __init__(self, key: str) -> None:
        super().__init__(f"{key} was changed by somebody else; nothing was changed here")
        self.key = key


class Missing(Lost):
    """The key to be replaced is gone."""

    def __init__(self, key: str) -> None:
        super().__init__(f"{key} is gone; nothing was changed")
        self.key = key


class InvalidKey(DfqError, ValueError):
    """A key as given can't be stored: use letters, digits, '.', '_', '-' and single slashes."""

    exit_code = 65


class BodyTooLarge(DfqError, ValueError):
    """A body is larger than a store of dfq takes or gives: keep it elsewhere and store its name."""

    exit_code = 65


class Stored(NamedTuple):
    """An object in a listing."""

    key: str
    #: Empty: it can't be read, say by the permissions of its file.
    etag: str
    #: When it was last written, in seconds since 1970 by the store's clock; S3 drops the fraction.
    modified: float
    size: int


class Object(NamedTuple):
    """An object as it was read."""

    body: bytes
    etag: str
    #: As in a listing.
    modified: float


class Page(NamedTuple):
    """A part of a listing, in the order of the keys."""

    entries: tuple[Stored, ...]
    #: The key to go on after; None at the end.
    next: str | None


class RequestCounter:
    """How many requests of each kind were sent: what the bill will say."""

    def __init__(self) -> None:
        self._counts = {"put": 0, "get": 0, "list": 0, "delete": 0}
        self._lock = threading.Lock()

    def add(self, kind: str) -> None:
        """One more was sent."""
        with self._lock:
            self._counts[kind] += 1

    def snapshot(self) -> dict[str, int]:
        """The counts by kind: put, get, list and delete."""
        with self._lock:
            return dict(self._counts)


class Store(Protocol):
    """Bodies under keys. Safe from threads; every call is bounded in time."""

    @property
    def url(self) -> str:
        """Where the store is, for people; no credentials are in it."""
        ...

    @property
    def requests(self) -> RequestCounter:
        """The requests sent so far."""
        ...

    @property
    def conditional_delete(self) -> bool:
        """Whether :meth:`delete` obeys an ETag; without, it refuses to be given one."""
        ...

    def create(self, key: str, body: bytes) -> str:
        """Store a body under a new key; its ETag. Raises :class:`Exists`."""
        ...

    def replace(self, key: str, body: bytes, etag: str) -> str:
        """Store a body in place of the version named; its ETag.

        Raises :class:`Changed` or :class:`Missing`.
        """
        ...

    def put(self, key: str, body: bytes) -> str:
        """Store a body whatever was there; its ETag."""
        ...

    def read(self, key: str) -> Object | None:
        """The object, or None if there is none."""
        ...

    def fetch(self, key: str, path: str) -> Stored | None:
        """Copy an object of any size into a new file here; None, and no file, if there is none.

        What happens to the object meanwhile does not show in the copy.
        """
        ...

    def create_from(self, key: str, path: str) -> str:
        """Like :meth:`create`, with the bytes of a file, however many."""
        ...

    def replace_from(self, key: str, path: str, etag: str) -> str:
        """Like :meth:`replace`, with the bytes of a file, however many."""
        ...

    def list(self, prefix: str, after: str = "", limit: int = MAX_PAGE) -> Page:
        """The keys that begin with ``prefix`` and come after ``after``, in the order of bytes.

        A store that walks folders (SeaweedFS) may put ``a/…`` before ``a-b`` and ``a.b``; it keeps
        to its order in ``after`` as well, so that pages read one after the other miss nothing.
        """
        ...

    def delete(self, key: str, etag: str | None = None) -> bool:
        """Delete a key, or only the version named. False: the store says it was not there.

        Raises :class:`Changed` if another version is there. Without an ETag a store may say True
        of a key that was not there.
        """
        ...

    def delete_many(self, keys: Iterable[str]) -> None:
        """Delete keys, whatever they hold and whether they are there."""
        ...

    def now(self) -> float:
        """The store's clock, in seconds since 1970; behind it by a little, never ahead."""
        ...

    def close(self) -> None:
        """Let go of connections and files."""
        ...


def check_key(key: str) -> str:
    """The key, if a store takes it."""
    if len(key) > MAX_KEY_LENGTH or not _KEY.fullmatch(key):
        raise InvalidKey(
            f"the key {key[:80]!r} can't be stored; use at most {MAX_KEY_LENGTH} letters, digits "
            "and any of ._=+@~- between single slashes"
        )
    return key


def check_prefix(prefix: str) -> str:
    """The beginning of keys, if there can be any like it."""
    if len(prefix) > MAX_KEY_LENGTH or not _PREFIX.fullmatch(prefix):
        raise InvalidKey(f"no key begins with {prefix[:80]!r}; use letters, digits and ._=+@~-/")
    return prefix


def check_body(key: str, body: bytes) -> bytes:
    """The body, if a store takes it."""
    if len(body) > MAX_BODY_BYTES:
        raise BodyTooLarge(
            f"the body for {key} has {len(body):,} bytes; {MAX_BODY_BYTES:,} at most. "
            "Keep it elsewhere and store its name."
        )
    return body


def check_limit(limit: int) -> int:
    """The size of a page, if a store gives such pages."""
    if not 1 <= limit <= MAX_PAGE:
        raise ValueError(f"a page has 1 to {MAX_PAGE} keys, not {limit}")
    return limit
