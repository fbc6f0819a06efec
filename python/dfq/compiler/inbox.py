"""Inbox files: read within bounds before a merge, and deleted after it, and no others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from dfq.compiler.paths import is_own
from dfq.compiler.site import Site, new_path
from dfq.errors import StoreUnsure
from dfq.store import MAX_PAGE, BodyTooLarge, Changed, Lost, Stored

#: One merge takes no more files, and no more bytes unless a single file has them.
MAX_FILES: Final = 10_000
MAX_BYTES: Final = 256 * 1024 * 1024
#: Larger files go through the disk; so do the others once so much is in memory.
_SMALL_BYTES: Final = 64 * 1024
_MEMORY_BYTES: Final = 8 * 1024 * 1024
_TRIES = 3


@dataclass(frozen=True)
class InboxFile:
    """A file as it was read: its key, the version, and its bytes or where they are."""

    key: str
    etag: str
    body: bytes | str


def bounded(
    entries: Sequence[Stored], max_files: int = MAX_FILES, max_bytes: int = MAX_BYTES
) -> list[Stored]:
    """As many of these as one merge takes; the first in any case."""
    taken: list[Stored] = []
    size = 0
    for entry in entries[:max_files]:
        size += entry.size
        if taken and size > max_bytes:
            break
        taken.append(entry)
    return taken


def read_files(site: Site, entries: Iterable[Stored], folder: str) -> list[InboxFile]:
    """Read files; those that are gone were merged by somebody else."""
    in_memory: list[tuple[Stored, bool]] = []
    held = 0
    for entry in entries:
        small = entry.size <= _SMALL_BYTES and held + entry.size <= _MEMORY_BYTES
        held += entry.size if small else 0
        in_memory.append((entry, small))

    def read(wanted: tuple[Stored, bool]) -> InboxFile | None:
        entry, small = wanted
        if small:
            # It may have grown since it was listed.
            with suppress(BodyTooLarge):
                found = site.store.read(entry.key)
                return None if found is None else InboxFile(entry.key, found.etag, found.body)
        path = new_path(folder, "inbox", site.chance)
        fetched = site.store.fetch(entry.key, path)
        return None if fetched is None else InboxFile(entry.key, fetched.etag, path)

    return [found for found in site.map(read, in_memory) if found is not None]


def delete_files(site: Site, files: Iterable[InboxFile]) -> int:
    """Delete files as they were read; one that was rewritten meanwhile stays. How many went.

    A name that dfq gave never means anything else, so those go many at a time and on no condition.
    """
    own: list[str] = []
    foreign: list[InboxFile] = []
    for file in files:
        if is_own(file.key):
            own.append(file.key)
        else:
            foreign.append(file)
    for start in range(0, len(own), MAX_PAGE):
        _delete_own(site, own[start : start + MAX_PAGE])
    return len(own) + sum(site.map(lambda file: _delete_version(site, file), foreign))


def _delete_own(site: Site, keys: list[str]) -> None:
    for tries_left in reversed(range(_TRIES)):
        try:
            site.store.delete_many(keys)
            return
        except StoreUnsure:
            if not tries_left:
                raise


def _delete_version(site: Site, file: InboxFile) -> bool:
    if site.store.conditional_delete:
        return site.writes.delete(file.key, file.etag)
    # Without the condition, all that can be done is to leave little time between.
    try:
        found = site.store.read(file.key)
        if found is None or found.etag != file.etag:
            return False
        return site.store.delete(file.key)
    except (BodyTooLarge, Changed, Lost):
        return False
