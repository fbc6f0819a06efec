"""Reading records: a shard and what waits for it, merged as a compiler would.

The inbox is read first and the shard after it. A compiler that works meanwhile writes the shard
before it deletes inbox files, so a record that is gone from the inbox is in the shard.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dfq import _core
from dfq.compiler.descriptor import Descriptor
from dfq.compiler.inbox import InboxFile, bounded, read_files
from dfq.compiler.listing import Listing, list_inbox, list_index
from dfq.compiler.merging import MAX_RECORD_BYTES, merge, translated
from dfq.compiler.paths import shard_key
from dfq.compiler.records import key_of, record_of
from dfq.compiler.site import SchemaGrew, Site, new_path
from dfq.errors import InvalidRecord, QueueBusy, ShardDamaged
from dfq.stores.files import remove

_LOT: Final = 1000
_TRIES: Final = 10


def get(site: Site, key: str) -> dict[str, str] | None:
    """The newest record of a key, also one that is marked as deleted; None if there is none."""
    try:
        key = key_of(site.descriptor, key)
    except InvalidRecord:
        return None
    try:
        return _get(site, site.descriptor, key)
    except ShardDamaged:
        before = site.descriptor.columns
        if site.refresh().columns == before:
            raise
        return _get(site, site.descriptor, key)


def _get(site: Site, descriptor: Descriptor, key: str) -> dict[str, str] | None:
    shard = _core.shard_of(key)
    with site.scratch() as folder:
        merged, key_column = None, descriptor.column(descriptor.key)
        files = read_files(site, list_inbox(site.store, shard), folder)
        path = new_path(folder, "shard", site.chance)
        there = site.store.fetch(shard_key(shard), path)
        found = None if there is None else _find(descriptor, path, key)
        if files:
            inbox: list[InboxFile | tuple[str, bytes | str]] = [*files]
            if found is not None:
                inbox.append((shard_key(shard), found + b"\n"))
            merged = merge(site, descriptor, folder, shard_path=None, inbox=inbox, shard=None)
            if any(one.kind == "too_many_fields" for one in merged.refused):
                descriptor = _grown(site, descriptor)
                merged = merge(site, descriptor, folder, shard_path=None, inbox=inbox, shard=None)
            found = _find(descriptor, merged.output, key)
    if found is None:
        return None
    (row,) = _core.split_usv(found + b"\n")
    assert row[key_column] == key
    return record_of(descriptor, row)


def _find(descriptor: Descriptor, path: str, key: str) -> bytes | None:
    try:
        return _core.find_usv(
            path,
            key,
            len(descriptor.fields),
            descriptor.column(descriptor.key),
            descriptor.key_rule,
        )
    except _core.CoreError as error:
        raise translated(error) from None


def _grown(site: Site, descriptor: Descriptor) -> Descriptor:
    fresh = site.refresh()
    return fresh if len(fresh.fields) >= len(descriptor.fields) else descriptor


def scan(site: Site, *, shard: str | None, deleted: bool) -> Iterator[dict[str, str]]:
    """All records, shard after shard in the order of keys; the tombstones if asked for."""
    descriptor = site.refresh()
    listing = Listing() if shard is not None else list_index(site.store, limit=1 << 62)
    if shard is not None:
        listing.waiting[shard] = list_inbox(site.store, shard)
    # Inboxes are listed before shards: what went from the one to the other meanwhile is seen.
    there = sorted({*listing.waiting, *listing.shards}) if shard is None else [shard]
    for one in there:
        with site.scratch() as folder:
            path = _merged_shard(site, one, listing, folder)
            if path is None:
                continue
            reader = _core.UsvReader(path, max_record_bytes=2 * MAX_RECORD_BYTES)
            while rows := reader.read(_LOT):
                for row in rows:
                    # All records of a scan have the columns that there were when it began.
                    record = record_of(descriptor, row[: len(descriptor.fields)])
                    if deleted or not record[descriptor.deleted_at]:
                        yield record


def _merged_shard(site: Site, shard: str, listing: Listing, folder: str) -> str | None:
    """A file with the shard and what waits for it; None if there is nothing."""
    for _ in range(_TRIES):
        try:
            return _merged_by(site, site.descriptor, shard, listing, folder)
        except SchemaGrew:
            # By now the site knows the columns that were added.
            continue
    raise QueueBusy(f"columns are added to {site.url} all the time; try again")


def _merged_by(
    site: Site, descriptor: Descriptor, shard: str, listing: Listing, folder: str
) -> str | None:
    entries = listing.waiting.get(shard, [])
    lots: list[list[InboxFile]] = []
    while entries:
        lot = bounded(entries)
        lots.append(read_files(site, lot, folder))
        entries = entries[len(lot) :]
    path: str | None = new_path(folder, "shard", site.chance)
    assert path is not None
    if site.store.fetch(shard_key(shard), path) is None:
        path = None
    for files in lots or [[]]:
        if not files and path is None:
            continue
        try:
            merged = merge(site, descriptor, folder, shard_path=path, inbox=files, shard=shard)
        except ShardDamaged:
            site.ensure_current(descriptor)
            raise
        if any(one.kind == "too_many_fields" for one in merged.refused):
            site.ensure_current(descriptor)
        # However many lots there are, the shard is on the disk twice at most.
        for done in (merged.rejects, path):
            if done is not None:
                remove(done)
        path = merged.output
    return path
