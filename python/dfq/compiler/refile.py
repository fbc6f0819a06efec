"""Records in the wrong inbox, or in none: moved to where they belong.

What is moved is written under a name made of its content, and only then its source is deleted. So
two compilers that move the same, or one that died between the two steps, do no harm: the same
names come out, and merging a record twice changes nothing.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO, Final

from dfq import _core
from dfq.compiler.descriptor import Descriptor
from dfq.compiler.inbox import bounded, delete_files, read_files
from dfq.compiler.merging import Merged, Refused, merge
from dfq.compiler.paths import refiled_key
from dfq.compiler.quarantine import create_file, set_aside
from dfq.compiler.reports import Reject
from dfq.compiler.site import Site, new_path
from dfq.store import Stored
from dfq.stores.files import open_file

#: Parts are kept in memory up to here, then added to files.
_MEMORY_BYTES: Final = 16 * 1024 * 1024


@dataclass
class Refiled:
    """What was moved."""

    #: The new inbox files, by shard.
    entries: dict[str, list[Stored]] = field(default_factory=dict)
    files: int = 0
    records: int = 0
    quarantined: list[Reject] = field(default_factory=list)


class Parts:
    """Lines sorted out by shard, in files of their own."""

    def __init__(self, site: Site, folder: str) -> None:
        self._site = site
        self._folder = folder
        self._parts: dict[str, bytearray] = {}
        self._paths: dict[str, str] = {}
        self._held = 0

    def add(self, shard: str, line: bytes) -> None:
        """A record, its line feed with it."""
        self._parts.setdefault(shard, bytearray()).extend(line)
        self._held += len(line)
        if self._held > _MEMORY_BYTES:
            self._flush()

    def write(self) -> dict[str, Stored]:
        """Put the parts into the inboxes of their shards."""
        self._flush()
        now = self._site.wall()
        written = {}
        for shard, path in sorted(self._paths.items()):
            with open_file(path) as file:
                digest = _sha256(file)
                size = file.tell()
            key = refiled_key(shard, digest)
            create_file(self._site, key, path)
            written[shard] = Stored(key, "", now, size)
        return written

    def _flush(self) -> None:
        for shard, lines in self._parts.items():
            path = self._paths.get(shard)
            if path is None:
                path = self._paths[shard] = new_path(self._folder, shard, self._site.chance)
            handle = os.open(
                path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
            )
            with os.fdopen(handle, "ab") as file:
                file.write(lines)
        self._parts, self._held = {}, 0


def refile_flat(site: Site, descriptor: Descriptor, flat: Sequence[Stored]) -> Refiled:
    """Move as many flat files as one merge takes into the inboxes of their shards."""
    done = Refiled()
    with site.scratch() as folder:
        files = read_files(site, bounded(flat), folder)
        merged = merge(site, descriptor, folder, shard_path=None, inbox=files, shard=None)
        if any(one.kind == "too_many_fields" for one in merged.refused):
            site.ensure_current(descriptor)
        parts = Parts(site, folder)
        with open_file(merged.output) as output:
            for line in output:
                parts.add(shard_of_line(descriptor, line), line)
                done.records += 1
        for shard, entry in parts.write().items():
            done.entries.setdefault(shard, []).append(entry)
        unread = {one.source for one in merged.refused if one.record == 0}
        refused = [one for one in merged.refused if one.record]
        done.quarantined = set_aside(site, merged, refused, folder) if refused else []
        done.files = delete_files(site, [file for file in files if file.key not in unread])
    return done


def refile_misplaced(
    site: Site, descriptor: Descriptor, merged: Merged, misplaced: Iterable[Refused], folder: str
) -> int:
    """Move records that came in the inbox of another shard; how many."""
    parts = Parts(site, folder)
    count = 0
    for line in _lines(merged, misplaced):
        parts.add(shard_of_line(descriptor, line), line)
        count += 1
    parts.write()
    return count


def shard_of_line(descriptor: Descriptor, line: bytes) -> str:
    """The shard that a record belongs to."""
    (row,) = _core.split_usv(line)
    key = row[descriptor.column(descriptor.key)]
    return _core.shard_of(_core.normal_key(key, descriptor.key_rule))


def _lines(merged: Merged, refused: Iterable[Refused]) -> Iterator[bytes]:
    """The raw records; neighbours may be told as one."""
    with open_file(merged.rejects) as rejects:
        for one in refused:
            rejects.seek(one.offset)
            left = one.length
            while line := rejects.readline(left):
                left -= len(line)
                if line != b"\n":
                    yield line if line.endswith(b"\n") else line + b"\n"


def _sha256(file: IO[bytes]) -> str:
    digest = hashlib.sha256()
    while chunk := file.read(1 << 20):
        digest.update(chunk)
    return digest.hexdigest()
