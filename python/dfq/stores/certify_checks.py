"""What a store must do when nobody is in the way. Each check raises Wrong with a sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dfq.errors import QueueUnavailable, StoreRefused
from dfq.store import CLOCK_SECONDS, Stored
from dfq.stores.certify_scratch import Scratch, Wrong

#: The first of January 2020: no store's clock is right before that.
_EARLIEST: Final = 1_577_836_800.0

#: Tasks and leases together, as a queue has them; the page holds fewer.
_LISTED: Final = ("a/lease.json", "a/task.json", "b/task.json", "c/lease.json", "c/task.json")
_PAGE: Final = 2


@dataclass(frozen=True)
class Deleting:
    """How a store deletes a version that is named."""

    #: Whether it leaves another version alone.
    conditional: bool
    #: Whether it tells a version that is gone already from one that it deletes.
    tells_gone: bool = False


def check_create(scratch: Scratch) -> None:
    """A new key is created and read back; one that exists is left alone."""
    key = scratch.key("create")
    try:
        first, _ = scratch.make(key)
    except StoreRefused as refusal:
        # Without the condition: if that is refused too, it is not the condition's fault.
        scratch.patiently(lambda: scratch.store.put(key, scratch.body()))
        raise Wrong(f"create: with If-None-Match nothing is stored ({refusal})") from None
    scratch.read_back(key, first)
    if scratch.create(key, scratch.body()) is not None:
        raise Wrong("create: a key that exists was created again; If-None-Match is not obeyed")
    if scratch.body_of(key) != first:
        raise Wrong("create: a key was told to exist, and written all the same")


def check_replace(scratch: Scratch) -> None:
    """The version named is replaced, and only that."""
    key = scratch.key("replace")
    _, old = scratch.make(key)
    try:
        body, new = scratch.renew(key, old)
    except StoreRefused as refusal:
        raise Wrong(f"replace: with If-Match nothing is stored ({refusal})") from None
    if new == old:
        raise Wrong("etag: the body changed, and its ETag did not; it must name one version")
    there = scratch.read_back(key, body)
    if there.etag != new:
        raise Wrong(f"etag: a write told {new}, and the read after it {there.etag}")
    if scratch.replace(key, scratch.body(), old) is not None:
        raise Wrong(
            "replace: a version was replaced though the ETag of an older one was named; If-Match "
            "is not obeyed, so updates are lost"
        )
    if scratch.body_of(key) != body:
        raise Wrong("replace: a version was told to be another, and replaced all the same")
    _check_replace_of_nothing(scratch, old)


def _check_replace_of_nothing(scratch: Scratch, etag: str) -> None:
    key = scratch.key("nothing")
    if scratch.replace(key, scratch.body(), etag) is not None:
        raise Wrong("replace: a key that is not there was replaced; If-Match must have an object")
    if scratch.read(key) is not None:
        raise Wrong("replace: a key was told not to be there, and written all the same")


def check_time(scratch: Scratch) -> None:
    """The store tells the time, and dates what it stores by the same clock."""
    before = _now(scratch)
    if before < _EARLIEST:
        raise Wrong(f"time: the store's clock says {before:.0f} seconds since 1970, before 2020")
    key = scratch.key("time")
    body, _ = scratch.make(key)
    there = scratch.read_back(key, body)
    after = _now(scratch)
    if after < before - CLOCK_SECONDS:
        raise Wrong(f"time: the store's clock went back by {before - after:.0f} seconds")
    if not before - CLOCK_SECONDS <= there.modified <= after + CLOCK_SECONDS:
        off = there.modified - after
        raise Wrong(
            f"time: what was written now is dated {off:+.0f} seconds off the store's own clock; "
            f"{CLOCK_SECONDS:.0f} at most"
        )


def _now(scratch: Scratch) -> float:
    try:
        return scratch.patiently(scratch.store.now)
    except StoreRefused:
        raise
    except QueueUnavailable as error:
        raise Wrong(f"time: the store does not tell it ({error})") from None


def check_listing(scratch: Scratch) -> None:
    """A listing shows at once what was written, all of it, in order and in pages."""
    prefix = f"{scratch.prefix}list/"
    written = {prefix + name: scratch.make(scratch.key(f"list/{name}")) for name in _LISTED}
    scratch.make(scratch.key("list-neighbour"))
    # The one in the middle is written twice: a listing must show the newer version.
    twice = prefix + _LISTED[2]
    written[twice] = scratch.renew(twice, written[twice][1])
    _check_page(scratch, prefix, written)
    _check_pages(scratch, prefix, list(written))


def _check_page(scratch: Scratch, prefix: str, written: dict[str, tuple[bytes, str]]) -> None:
    entries = scratch.list(prefix).entries
    keys = [entry.key for entry in entries]
    missing = len(written.keys() - set(keys))
    if missing:
        raise Wrong(f"list: {missing} of {len(written)} keys just written are missing")
    if len(keys) > len(written):
        raise Wrong(f"list: {len(keys) - len(written)} keys too many: the prefix is not obeyed")
    if keys != sorted(keys):
        raise Wrong("list: the keys are not in the order of their bytes")
    for entry in entries:
        _check_entry(scratch, entry, *written[entry.key])


def _check_entry(scratch: Scratch, entry: Stored, body: bytes, etag: str) -> None:
    if entry.etag != etag:
        raise Wrong(f"list: a key is listed with the ETag {entry.etag}, and has {etag}")
    if entry.size != len(body):
        raise Wrong(f"list: a key is listed with {entry.size} bytes, and has {len(body)}")
    off = entry.modified - _now(scratch)
    # No request of ours is older than that; a date from another clock or zone is hours off.
    if not -600.0 <= off <= CLOCK_SECONDS:
        raise Wrong(f"time: a key just written is listed {off:+.0f} seconds off the store's clock")


def _check_pages(scratch: Scratch, prefix: str, keys: list[str]) -> None:
    seen: list[str] = []
    after = ""
    # One page more than it takes: a last empty one does no harm.
    for _ in range(len(keys) // _PAGE + 2):
        page = scratch.list(prefix, after, _PAGE)
        if len(page.entries) > _PAGE:
            raise Wrong(f"list: a page of {_PAGE} keys was asked for, and {len(page.entries)} came")
        seen += [entry.key for entry in page.entries]
        if page.next is None:
            break
        after = page.next
    if seen != keys:
        raise Wrong(
            f"list: of {len(keys)} keys in pages of {_PAGE} came {len(set(seen) & set(keys))}, "
            f"{len(seen) - len(set(seen))} of them twice; all must come, in order, once"
        )
    # No such key: a listing goes on after where it would stand.
    rest = [entry.key for entry in scratch.list(prefix, f"{prefix}a/x").entries]
    if rest != keys[2:]:
        raise Wrong(f"list: {len(rest)} keys came after one that is not there, not {len(keys[2:])}")


def probe_conditional_delete(scratch: Scratch) -> Deleting:
    """Whether a version that is named is deleted, and no other. A queue can do without."""
    if not scratch.store.conditional_delete:
        return Deleting(conditional=False)
    store, key = scratch.store, scratch.key("delete")
    _, old = scratch.make(key)
    body, new = scratch.renew(key, old)
    try:
        told = scratch.attempt(lambda: store.delete(key, old)).told
    except StoreRefused:
        # Not implemented, or not allowed: the delete without a condition will tell.
        return Deleting(conditional=False)
    if scratch.body_of(key) != body:
        if told == "lost":
            raise Wrong("delete: a version was told to be another, and deleted all the same")
        return Deleting(conditional=False)
    if told == "won":
        return Deleting(conditional=False)
    told = scratch.attempt(lambda: store.delete(key, new)).told
    if scratch.body_of(key) == body:
        return Deleting(conditional=False)
    if told == "lost":
        raise Wrong("delete: a version was told not to be there, and deleted all the same")
    again = scratch.attempt(lambda: store.delete(key, new)).told
    return Deleting(conditional=True, tells_gone=again == "lost")


def check_delete(scratch: Scratch) -> None:
    """What is deleted is gone at once, from reads and from listings. Uses the listed keys."""
    prefix = f"{scratch.prefix}list/"
    keys = [prefix + name for name in _LISTED]
    # A create that a bad network repeats may bring one key back; it does not happen to two.
    if not _is_gone(scratch, keys[0]) and not _is_gone(scratch, keys[1]):
        raise Wrong("delete: keys that were told to be deleted were still read")
    scratch.patiently(lambda: scratch.store.delete_many(keys))
    for entry in scratch.list(prefix).entries:
        if scratch.read(entry.key) is None:
            raise Wrong("list: a key that was deleted before is still listed")
        scratch.patiently(lambda: scratch.store.delete_many(keys))
        if scratch.read(entry.key) is not None:
            raise Wrong("delete: keys that were told to be deleted together are still there")


def _is_gone(scratch: Scratch, key: str) -> bool:
    scratch.patiently(lambda: scratch.store.delete(key))
    return scratch.read(key) is None
