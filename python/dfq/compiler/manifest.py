"""manifest.json: what each shard held when it was last compiled.

Derived, for people and for who plans a query. Nothing that reads or compiles an index believes
it; if it lies, `verify` says so and `rebuild` writes it anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import orjson

from dfq.compiler.compiling import Compiled
from dfq.compiler.descriptor import Descriptor
from dfq.compiler.paths import MANIFEST, SHARD_IDS
from dfq.compiler.records import iso, seconds_of
from dfq.compiler.site import Site
from dfq.errors import QueueBusy, StoreUnsure
from dfq.store import BodyTooLarge

_TRIES: Final = 5

#: The statistics of a shard: records, tombstones, bytes, sha256, etag, schema_sha256,
#: newest_updated_at and compiled_at.
Entry = dict[str, Any]


@dataclass(frozen=True)
class Manifest:
    """The statistics by shard, and the version they were read as; empty if there are none."""

    shards: Mapping[str, Entry]
    etag: str = ""

    def total(self, figure: str) -> int:
        """A figure over all shards."""
        return sum(int(entry[figure]) for entry in self.shards.values())

    @property
    def newest_updated_at(self) -> str:
        """The newest time of any record."""
        times = [str(entry["newest_updated_at"]) for entry in self.shards.values()]
        return max(times, key=lambda text: seconds_of(text) or float("-inf"), default="")


def read_manifest(site: Site) -> Manifest:
    """The manifest; one that can't be read counts as empty."""
    try:
        found = site.store.read(MANIFEST)
    except BodyTooLarge:
        listed = site.store.list(MANIFEST, limit=1).entries
        return Manifest({}, listed[0].etag if listed else "")
    if found is None:
        return Manifest({})
    try:
        value = orjson.loads(found.body)
        shards = {shard: _checked(entry) for shard, entry in value["shards"].items()}
        if not shards.keys() <= set(SHARD_IDS):
            raise ValueError("not only shards")
    except (ValueError, TypeError, LookupError, AttributeError):
        return Manifest({}, found.etag)
    return Manifest(shards, found.etag)


def entry_of(descriptor: Descriptor, compiled: Compiled) -> Entry:
    """The statistics of a shard as it was left."""
    report = compiled.report
    return {
        "records": report.records,
        "tombstones": report.tombstones,
        "bytes": report.bytes,
        "sha256": compiled.sha256,
        "etag": compiled.etag,
        "schema_sha256": descriptor.schema_sha256,
        "newest_updated_at": "" if compiled.newest_ns is None else _iso_ns(compiled.newest_ns),
        "compiled_at": iso(compiled.at),
    }


def update(site: Site, entries: Mapping[str, Entry], *, replace_all: bool = False) -> bool:
    """Put these statistics into the manifest, if they are news; whether they are in there now.

    Of two compilers that update a shard's the later one counts. Who does not get through leaves
    it: it is derived.
    """
    for _ in range(_TRIES):
        found = read_manifest(site)
        shards = {} if replace_all else dict(found.shards)
        for shard, entry in entries.items():
            if shard not in shards or _is_news(shards[shard], entry):
                shards[shard] = entry
        if _same(shards, found.shards):
            return True
        body = orjson.dumps(
            {
                "dfq": 1,
                "shards": dict(sorted(shards.items())),
                "nonce": site.writes.nonce(),
            },
            option=orjson.OPT_INDENT_2,
        )
        try:
            if found.etag:
                written = site.writes.replace(MANIFEST, body, found.etag)
            else:
                written = site.writes.create(MANIFEST, body)
        except (StoreUnsure, QueueBusy, BodyTooLarge):
            return False
        if written.won:
            return True
    return False


def _is_news(old: Entry, new: Entry) -> bool:
    if _figures(old) == _figures(new):
        return False
    return (seconds_of(old["compiled_at"]) or 0.0) <= (seconds_of(new["compiled_at"]) or 0.0)


def _same(one: Mapping[str, Entry], other: Mapping[str, Entry]) -> bool:
    return {shard: _figures(entry) for shard, entry in one.items()} == {
        shard: _figures(entry) for shard, entry in other.items()
    }


def _figures(entry: Entry) -> Entry:
    return {name: value for name, value in entry.items() if name != "compiled_at"}


_TYPES = {
    "records": int,
    "tombstones": int,
    "bytes": int,
    "sha256": str,
    "etag": str,
    "schema_sha256": str,
    "newest_updated_at": str,
    "compiled_at": str,
}


def _checked(entry: Any) -> Entry:
    for name, kind in _TYPES.items():
        if not isinstance(entry[name], kind):
            raise TypeError(name)
    return {name: entry[name] for name in _TYPES}


def _iso_ns(ns: int) -> str:
    """A moment as text; beyond what a date can hold, as a number of seconds."""
    try:
        whole = datetime.fromtimestamp(ns // 1_000_000_000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{ns / 1e9:.9f}"
    return f"{whole:%Y-%m-%dT%H:%M:%S}.{ns % 1_000_000_000:09d}Z"
