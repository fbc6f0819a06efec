"""What can't be merged: set aside byte by byte, with a reason, before its file goes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import IO

import orjson

from dfq.compiler.merging import Merged, Refused
from dfq.compiler.paths import QUARANTINE
from dfq.compiler.records import iso
from dfq.compiler.reports import Reject
from dfq.compiler.site import Site, new_path
from dfq.errors import StoreUnsure
from dfq.store import Lost
from dfq.stores.files import copy, new_file, open_file

#: So many are told one by one; the bytes are kept of all.
_TOLD = 1000


def set_aside(site: Site, merged: Merged, refused: Sequence[Refused], folder: str) -> list[Reject]:
    """Write the refused records of each file into a corner of their own in ``quarantine/``.

    Corners are named after what they hold: setting the same aside twice makes one.
    """
    by_source: dict[str, list[Refused]] = {}
    for one in refused:
        by_source.setdefault(one.source, []).append(one)
    for source, records in by_source.items():
        _set_aside_one(site, merged, source, records, folder)
    return [Reject(one.source, one.record, one.kind, one.message) for one in refused]


def _set_aside_one(
    site: Site, merged: Merged, source: str, records: Sequence[Refused], folder: str
) -> None:
    path = new_path(folder, "aside", site.chance)
    digest = hashlib.sha256(source.encode() + b"\0")
    told: list[dict[str, int | str]] = []
    position = 0
    with open_file(merged.rejects) as rejects, new_file(path) as file:
        for one in records:
            rejects.seek(one.offset)
            copy(rejects, file, one.length)
            file.write(b"\n")
            if len(told) < _TOLD:
                told.append(
                    {
                        "record": one.record,
                        "reason": one.kind,
                        "message": one.message,
                        "offset": position,
                        "length": one.length,
                    }
                )
            position += one.length + 1
        _add(digest, file)
    corner = f"{QUARANTINE}{digest.hexdigest()[:32]}/"
    reason = {
        "dfq": 1,
        "source": source,
        "at": iso(site.wall()),
        "worker_id": site.worker_id,
        "records": told,
        "rejected": len(records),
        "nonce": site.writes.nonce(),
    }
    create_file(site, f"{corner}records.usv", path)
    site.writes.create(f"{corner}reason.json", orjson.dumps(reason, option=orjson.OPT_INDENT_2))


def create_file(site: Site, key: str, path: str) -> None:
    """Create a key whose name says what it holds: if it is there, it is as good."""
    for tries_left in reversed(range(3)):
        try:
            site.store.create_from(key, path)
            return
        except Lost:
            return
        except StoreUnsure:
            if not tries_left:
                raise


def _add(digest: hashlib._Hash, file: IO[bytes]) -> None:
    file.seek(0)
    while chunk := file.read(1 << 20):
        digest.update(chunk)
