"""Compiling one shard. The order of its steps is what makes it safe; see the package."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from dfq.compiler.descriptor import Descriptor
from dfq.compiler.inbox import InboxFile, delete_files, read_files
from dfq.compiler.listing import list_inbox
from dfq.compiler.lock import LOCK_SECONDS, Keeper, Lock, acquire
from dfq.compiler.merging import Merged, merge
from dfq.compiler.paths import shard_key
from dfq.compiler.quarantine import set_aside
from dfq.compiler.refile import refile_misplaced
from dfq.compiler.reports import Outcome, ShardReport
from dfq.compiler.site import Site, new_path
from dfq.errors import ShardDamaged, StoreBusy, StoreUnsure
from dfq.store import Lost, Stored
from dfq.stores.files import open_file


@dataclass(frozen=True)
class Work:
    """A shard and the inbox files that a pass wants to merge into it."""

    shard: str
    entries: Sequence[Stored]
    #: Whether nothing else waits for this shard, so that old marks of deletion may go.
    is_all: bool
    #: Whether a lock was in the listing.
    lock_seen: bool = False
    lock_seconds: float = LOCK_SECONDS


@dataclass(frozen=True)
class Compiled:
    """What came of it, and the version of the shard that it left."""

    report: ShardReport
    etag: str = ""
    sha256: str = ""
    newest_ns: int | None = None
    #: When it was, by the store's clock: after the shard was read, before it was written.
    at: float = 0.0


def compile_shard(site: Site, descriptor: Descriptor, work: Work, keeper: Keeper) -> Compiled:
    """Merge inbox files into their shard. Raises what the way to the store raises."""
    try:
        lock = acquire(site, work.shard, seen=work.lock_seen, seconds=work.lock_seconds)
    except StoreBusy as error:
        return _ended(work.shard, "busy", str(error))
    if lock is None:
        return _ended(work.shard, "locked")
    keeper.hold(lock)
    try:
        with site.scratch() as folder:
            return _compile_locked(site, descriptor, work, lock, folder)
    except StoreBusy as error:
        return _ended(work.shard, "busy", str(error))
    finally:
        keeper.let_go(lock)


def _compile_locked(
    site: Site, descriptor: Descriptor, work: Work, lock: Lock, folder: str
) -> Compiled:
    shard_path = new_path(folder, "shard", site.chance)
    there = site.store.fetch(shard_key(work.shard), shard_path)
    files = read_files(site, work.entries, folder)
    known = None if there is None else shard_path
    at = site.wall()
    merged = _merge(site, descriptor, work, known, files, folder)
    if isinstance(merged, Merged) and merged.dropped and _has_more(site, work):
        kept = replace(work, is_all=False)
        merged = _merge(site, descriptor, kept, known, files, folder)
    if isinstance(merged, Compiled):
        return merged
    if lock.lost:
        return _ended(work.shard, "lost", "another compiler took the lock over")
    etag = "" if there is None else there.etag
    if merged.changed and (there is not None or merged.records):
        end, etag = write_shard(site, work.shard, merged, there)
        if end != "won":
            return _ended(work.shard, end, _WHY[end])
    settled = _settle(site, descriptor, work, merged, files, folder)
    return Compiled(settled, etag, merged.sha256, merged.newest_ns, at)


_WHY = {
    "lost": "another compiler wrote it first",
    "unsure": "the store gave no answer, and what it holds is not ours",
}


def _merge(
    site: Site,
    descriptor: Descriptor,
    work: Work,
    shard_path: str | None,
    files: list[InboxFile],
    folder: str,
) -> Merged | Compiled:
    try:
        merged = merge(
            site,
            descriptor,
            folder,
            shard_path=shard_path,
            inbox=files,
            shard=work.shard,
            drop_deleted=work.is_all,
        )
    except ShardDamaged as error:
        site.ensure_current(descriptor)
        return _ended(work.shard, "damaged", f"{shard_key(work.shard)}: {error}")
    if any(one.kind == "too_many_fields" for one in merged.refused):
        site.ensure_current(descriptor)
    return merged


def _has_more(site: Site, work: Work) -> bool:
    """Whether more waits than the pass found: moved here by another compiler while it listed."""
    known = {entry.key for entry in work.entries}
    return not known.issuperset(entry.key for entry in list_inbox(site.store, work.shard))


def write_shard(
    site: Site, shard: str, merged: Merged, there: Stored | None
) -> tuple[Literal["won", "lost", "unsure"], str]:
    """Write a merged shard in place of the version that was merged, and of no other.

    If the answer is lost, the shard is read back: holding what was sent, it is as good as written.
    """
    key = shard_key(shard)
    try:
        if there is None:
            return "won", site.store.create_from(key, merged.output)
        return "won", site.store.replace_from(key, merged.output, there.etag)
    except Lost:
        return "lost", ""
    except StoreUnsure:
        pass
    with site.scratch() as folder:
        path = new_path(folder, "readback", site.chance)
        found = site.store.fetch(key, path)
        if found is None:
            return "unsure", ""
        with open_file(path) as file:
            ours = hashlib.file_digest(file, "sha256").hexdigest() == merged.sha256  # type: ignore[arg-type]
    return ("won", found.etag) if ours else ("unsure", "")


def _settle(
    site: Site,
    descriptor: Descriptor,
    work: Work,
    merged: Merged,
    files: list[InboxFile],
    folder: str,
) -> ShardReport:
    """The shard has it all: put aside what it has not, and empty the inbox."""
    # A file that could not be read at all was not merged.
    unread = {one.source for one in merged.refused if one.record == 0}
    refused = [one for one in merged.refused if one.record]
    misplaced = [one for one in refused if one.kind == "misplaced"]
    damaged = [one for one in refused if one.kind != "misplaced"]
    refiled = refile_misplaced(site, descriptor, merged, misplaced, folder) if misplaced else 0
    quarantined = set_aside(site, merged, damaged, folder) if damaged else []
    deleted = delete_files(site, [file for file in files if file.key not in unread])
    return ShardReport(
        work.shard,
        "compiled" if merged.changed else "unchanged",
        files=deleted,
        taken=merged.taken,
        superseded=merged.superseded,
        records=merged.records,
        tombstones=merged.tombstones,
        bytes=merged.bytes,
        dropped=merged.dropped,
        normalised=merged.normalised,
        padded=merged.padded,
        refiled=refiled,
        quarantined=tuple(quarantined),
        future=merged.future,
    )


def _ended(shard: str, outcome: Outcome, message: str = "") -> Compiled:
    return Compiled(ShardReport(shard, outcome, message))
