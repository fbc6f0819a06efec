"""Keys that are empty although something stands there.

A store that can't delete on a condition must not be told to delete what may come back: the request
may arrive late, and take away what somebody wrote meanwhile. There a mark is written in place of
the version that goes, and whoever writes the key next replaces the mark; both are conditional.
Only what is completed is deleted there, for no completed task comes back.
"""

from __future__ import annotations

from typing import Final

from dfq.engines.s3.writes import Writes, Written
from dfq.store import Store, Stored

_GONE: Final = b'{"dfq":1,"gone":true,'


def is_gone(body: bytes) -> bool:
    """Whether a body is the mark of an empty key."""
    return body.startswith(_GONE)


def _mark(nonce: str) -> bytes:
    return _GONE + f'"nonce":"{nonce}"}}'.encode()


#: No record of a task is as short as a mark.
_MARK_BYTES: Final = len(_mark("0" * 16))


def is_mark(stored: Stored) -> bool:
    """Whether an object in a listing is the mark of an empty key; costs no request."""
    return stored.size == _MARK_BYTES


def vacate(store: Store, writes: Writes, key: str, etag: str) -> bool:
    """Empty a key, if it still holds this version."""
    if store.conditional_delete:
        return writes.delete(key, etag)
    return writes.replace(key, _mark(writes.nonce()), etag).won


def occupy(store: Store, writes: Writes, key: str, body: bytes) -> Written:
    """Write a key that is empty."""
    written = writes.create(key, body)
    if written.end != "lost" or store.conditional_delete:
        return written
    found = store.read(key)
    if found is None or not is_gone(found.body):
        return written
    return writes.replace(key, body, found.etag)
