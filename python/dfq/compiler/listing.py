"""One look at everything in an index, shared by all shards of a pass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from dfq.compiler.paths import INBOX, QUARANTINE, SHARDS, inbox_prefix, kind_of
from dfq.store import MAX_PAGE, Store, Stored

#: A listing ends after so many; the next one goes on where it ended.
MAX_LISTED: Final = 200_000
_MAX_NAMED: Final = 100
#: Sorts after every key that begins as the one before it.
_LAST: Final = "~~~~"


@dataclass
class Listing:
    """What stands in an index, sorted out."""

    #: Inbox files by shard, in the order of their names.
    waiting: dict[str, list[Stored]] = field(default_factory=dict)
    #: Files without a shard in their path, as the seed has them.
    flat: list[Stored] = field(default_factory=list)
    shards: dict[str, Stored] = field(default_factory=dict)
    locks: dict[str, Stored] = field(default_factory=dict)
    #: What no compiler can take: names that are no keys, places that are none.
    odd: list[str] = field(default_factory=list)
    #: Files in an inbox that can't be read, and may hold anything.
    unreadable: list[str] = field(default_factory=list)
    quarantined: int = 0
    #: Where the next listing has to go on; empty: it is complete.
    rest: str = ""

    @property
    def complete(self) -> bool:
        """Whether this is all there is."""
        return not self.rest

    def add(self, entry: Stored) -> None:
        """Sort in one object."""
        kind, shard = kind_of(entry.key)
        if not entry.etag and kind in ("waiting", "flat"):
            self.unreadable.append(entry.key)
        elif kind == "waiting":
            self.waiting.setdefault(shard, []).append(entry)
        elif kind == "flat":
            self.flat.append(entry)
        elif kind == "shard":
            self.shards[shard] = entry
        elif kind == "lock":
            self.locks[shard] = entry
        elif kind == "odd":
            self.odd.append(entry.key)

    def ignored(self, store: Store) -> list[str]:
        """What lies where inbox files do, and is never compiled as it is."""
        strangers = getattr(store, "strangers", None)
        links = strangers(INBOX) if strangers is not None else []
        return sorted({*self.odd, *self.unreadable, *links})[:_MAX_NAMED]

    def files(self) -> int:
        """Inbox files in all."""
        return sum(map(len, self.waiting.values())) + len(self.flat)

    def bytes(self) -> int:
        """Their size."""
        files = (entry for entries in self.waiting.values() for entry in entries)
        return sum(entry.size for entry in (*files, *self.flat))


def list_index(
    store: Store, after: str = "", *, limit: int = MAX_LISTED, quarantine: bool = False
) -> Listing:
    """List an index from a key on, but not what is in quarantine, unless asked to count it."""
    found = Listing()
    count = 0
    while True:
        page = store.list("", after, MAX_PAGE)
        for entry in page.entries:
            if entry.key.startswith(QUARANTINE):
                found.quarantined += entry.key.endswith("/reason.json")
            else:
                found.add(entry)
        count += len(page.entries)
        if page.next is None:
            return found
        after = page.next
        if after.startswith(QUARANTINE) and not quarantine:
            after = QUARANTINE + _LAST
        if count >= limit:
            found.rest = after
            return found


def list_inbox(store: Store, shard: str) -> list[Stored]:
    """What waits for one shard."""
    listing = Listing()
    for entry in _pages(store, inbox_prefix(shard)):
        listing.add(entry)
    return listing.waiting.get(shard, [])


def list_shards(store: Store) -> dict[str, Stored]:
    """The shards there are."""
    listing = Listing()
    for entry in _pages(store, SHARDS):
        listing.add(entry)
    return listing.shards


def _pages(store: Store, prefix: str) -> Iterator[Stored]:
    after = ""
    while True:
        page = store.list(prefix, after, MAX_PAGE)
        yield from page.entries
        if page.next is None:
            return
        after = page.next
