"""Looking for trouble in an index, and writing what is derived anew."""

from __future__ import annotations

from collections.abc import Callable

from dfq.compiler.compiling import Compiled
from dfq.compiler.descriptor import Descriptor
from dfq.compiler.listing import Listing, list_index
from dfq.compiler.lock import is_over
from dfq.compiler.manifest import Entry, entry_of, read_manifest, update
from dfq.compiler.merging import merge
from dfq.compiler.paths import INBOX, MANIFEST, SHARD_IDS, lock_key, shard_key
from dfq.compiler.reports import IndexStats, ShardReport
from dfq.compiler.site import Site, new_path
from dfq.errors import ShardDamaged, StoreRefused
from dfq.record import Finding

Progress = Callable[[int, int], None]

_ADVICE_OWNER = "see to its owner and its permissions"
_ADVICE_MANIFEST = "run `dfq index rebuild`; nothing but statistics is wrong"


def stats(site: Site) -> IndexStats:
    """What an index holds: by its manifest, and one listing."""
    site.refresh()
    listing = list_index(site.store, limit=1 << 62, quarantine=True)
    manifest = read_manifest(site)
    stale = [
        shard
        for shard in SHARD_IDS
        if _etag_of(listing, shard) != manifest.shards.get(shard, {}).get("etag")
    ]
    return IndexStats(
        url=site.url,
        shards=len(listing.shards),
        records=manifest.total("records"),
        tombstones=manifest.total("tombstones"),
        bytes=sum(entry.size for entry in listing.shards.values()),
        newest_updated_at=manifest.newest_updated_at,
        waiting_files=listing.files(),
        waiting_bytes=listing.bytes(),
        flat_files=len(listing.flat),
        quarantined=listing.quarantined,
        locked=sorted(listing.locks),
        stale=stale,
    )


def _etag_of(listing: Listing, shard: str) -> str | None:
    entry = listing.shards.get(shard)
    return None if entry is None else entry.etag


def verify(site: Site, on_progress: Progress = lambda _done, _total: None) -> list[Finding]:
    """Read every shard; what is wrong with it, with the manifest and with what lies around."""
    descriptor = site.refresh()
    listing = list_index(site.store, limit=1 << 62, quarantine=True)
    manifest = read_manifest(site)
    findings = _strangers(site, listing)
    for number, shard in enumerate(sorted(listing.shards), 1):
        known = manifest.shards.get(shard)
        try:
            compiled, canonical = examine(site, descriptor, shard)
        except ShardDamaged as error:
            findings.append(Finding("error", shard_key(shard), str(error), _ADVICE_DAMAGED))
            continue
        except StoreRefused as error:
            if listing.shards[shard].etag:
                raise
            findings.append(Finding("error", shard_key(shard), str(error), _ADVICE_OWNER))
            continue
        finally:
            on_progress(number, len(listing.shards))
        if compiled is None:
            continue
        if not canonical:
            findings.append(
                Finding(
                    "warning",
                    shard_key(shard),
                    "records are not written as dfq writes them",
                    "the next compile of the shard mends it",
                )
            )
        findings += _lies(descriptor, shard, known, compiled)
    findings += [
        Finding(
            "warning", MANIFEST, f"tells of shard {shard}, which is not there", _ADVICE_MANIFEST
        )
        for shard in sorted(manifest.shards.keys() - listing.shards.keys())
    ]
    return findings


_ADVICE_DAMAGED = "restore a copy of it, or mend the record by hand; until then it is not compiled"


def _lies(
    descriptor: Descriptor, shard: str, known: Entry | None, compiled: Compiled
) -> list[Finding]:
    if known is None:
        said = f"does not tell of shard {shard}"
        return [Finding("warning", MANIFEST, said, _ADVICE_MANIFEST)]
    truth = entry_of(descriptor, compiled)
    names = ("records", "tombstones", "bytes", "sha256", "newest_updated_at")
    lies = [name for name in names if truth[name] != known[name]]
    wrong = [f"{name} is {truth[name]}, not {known[name]}" for name in lies]
    if not wrong:
        return []
    said = f"does not tell the truth about shard {shard}: {'; '.join(wrong)}"
    return [Finding("warning", MANIFEST, said, _ADVICE_MANIFEST)]


def _strangers(site: Site, listing: Listing) -> list[Finding]:
    findings = [
        Finding(
            "warning",
            key,
            "lies in the inbox under a name that is never compiled",
            "rename it: letters, digits and ._=+@~- with the ending .usv, directly in inbox/",
        )
        for key in listing.odd
    ]
    findings += [
        Finding("error", key, "can't be read, so it is not compiled", _ADVICE_OWNER)
        for key in listing.unreadable
    ]
    strangers = getattr(site.store, "strangers", None)
    findings += [
        Finding(
            "warning",
            name,
            "is a link or no regular file, so it is never read",
            "put the file itself there",
        )
        for name in (strangers(INBOX) if strangers is not None else [])
    ]
    now = site.wall()
    for shard in sorted(listing.locks):
        found = site.store.read(lock_key(shard))
        if found is not None and is_over(found, now):
            findings.append(
                Finding("ok", lock_key(shard), "is over; the next compiler takes it over")
            )
    if listing.quarantined:
        findings.append(
            Finding(
                "warning",
                "quarantine/",
                f"{listing.quarantined:,} files had records that could not be merged",
                "each folder has the records and reason.json; mend and put them, then delete it",
            )
        )
    return findings


def rebuild(site: Site, on_progress: Progress = lambda _done, _total: None) -> list[Finding]:
    """Write the manifest anew from the shards; what could not be read."""
    site.ensure_safe()
    descriptor = site.refresh()
    listing = list_index(site.store, limit=1 << 62)
    findings: list[Finding] = []
    entries: dict[str, Entry] = {}
    for number, shard in enumerate(sorted(listing.shards), 1):
        try:
            compiled, _ = examine(site, descriptor, shard)
            if compiled is not None:
                entries[shard] = entry_of(descriptor, compiled)
        except ShardDamaged as error:
            findings.append(Finding("error", shard_key(shard), str(error), _ADVICE_DAMAGED))
        on_progress(number, len(listing.shards))
    if not update(site, entries, replace_all=True):
        said = "was not written: others write it all the time, or the store gave no answer"
        findings.append(Finding("error", MANIFEST, said, "run `dfq index rebuild` again"))
    return findings


def examine(site: Site, descriptor: Descriptor, shard: str) -> tuple[Compiled | None, bool]:
    """Read a shard as a merge would: its statistics, and whether a merge would leave it alone."""
    with site.scratch() as folder:
        path = new_path(folder, "shard", site.chance)
        at = site.wall()
        there = site.store.fetch(shard_key(shard), path)
        if there is None:
            return None, True
        merged = merge(site, descriptor, folder, shard_path=path, inbox=[], shard=shard)
        with open(path, "rb") as file:  # noqa: PTH123 - a path as the core takes it
            import hashlib

            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    report = ShardReport(
        shard,
        "unchanged",
        records=merged.records,
        tombstones=merged.tombstones,
        bytes=there.size,
    )
    compiled = Compiled(report, there.etag, sha256, merged.newest_ns, at)
    return compiled, not merged.changed
