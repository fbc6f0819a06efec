"""The merge of the core, with the rules of an index."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from dfq import _core
from dfq.compiler.descriptor import Descriptor
from dfq.compiler.inbox import InboxFile
from dfq.compiler.site import Site, new_path
from dfq.errors import QueueUnavailable, ShardDamaged

MAX_RECORD_BYTES: Final = 16 * 1024 * 1024
#: So much of an inbox the core keeps in memory; the rest it spills in sorted runs.
MEMORY_BYTES: Final = 8 * 1024 * 1024
_DAY_SECONDS = 86_400


@dataclass(frozen=True)
class Refused:
    """A record that was not merged; its raw bytes stand in the file of rejects."""

    source: str
    #: 0: the whole file.
    record: int
    kind: str
    message: str
    offset: int
    length: int


@dataclass(frozen=True)
class Merged:
    """A merge: the new shard in a file, and what is known of it."""

    output: str
    rejects: str
    records: int
    tombstones: int
    bytes: int
    sha256: str
    newest_ns: int | None
    #: Whether the output differs from the shard that was read.
    changed: bool
    taken: int
    superseded: int
    normalised: int
    padded: int
    dropped: int
    future: tuple[tuple[str, int], ...]
    refused: tuple[Refused, ...]


def merge(
    site: Site,
    descriptor: Descriptor,
    folder: str,
    *,
    shard_path: str | None,
    inbox: Iterable[InboxFile | tuple[str, bytes | str]],
    shard: str | None,
    drop_deleted: bool = False,
) -> Merged:
    """Merge inbox files into a shard; raises ShardDamaged if the shard can't be read.

    ``shard``: keys that belong to another one are refused. ``drop_deleted``: leave out old marks
    of deletion; only if nothing older can be waiting elsewhere.
    """
    output = new_path(folder, "merged", site.chance)
    rejects = new_path(folder, "rejects", site.chance)
    now = site.wall()
    keep_seconds = descriptor.keep_deleted_days * _DAY_SECONDS
    rules = {
        "columns": len(descriptor.fields),
        "key": descriptor.column(descriptor.key),
        "updated_at": descriptor.column(descriptor.updated_at),
        "deleted_at": descriptor.column(descriptor.deleted_at),
        "key_rule": descriptor.key_rule,
        "shard": shard,
        "drop_deleted_before_ns": int((now - keep_seconds) * 1e9) if drop_deleted else None,
        "now_ns": int(now * 1e9),
        "max_record_bytes": MAX_RECORD_BYTES,
        "memory_bytes": MEMORY_BYTES,
        "scratch": folder,
    }
    given = [(one.key, one.body) if isinstance(one, InboxFile) else one for one in inbox]
    try:
        report: dict[str, Any] = _core.merge_usv(shard_path, given, output, rejects, rules)
    except _core.CoreError as error:
        raise translated(error) from None
    return Merged(
        output=output,
        rejects=rejects,
        future=tuple(report.pop("future")),
        refused=tuple(Refused(*one) for one in report.pop("rejects")),
        **{name: report[name] for name in _FIGURES},
    )


_FIGURES = (
    "records",
    "tombstones",
    "bytes",
    "sha256",
    "newest_ns",
    "changed",
    "taken",
    "superseded",
    "normalised",
    "padded",
    "dropped",
)


def translated(error: _core.CoreError) -> Exception:
    """An error of the core as one of dfq's."""
    kind, message = str(error.args[0]), str(error.args[1])
    if kind == "damaged":
        return ShardDamaged(message)
    return QueueUnavailable(f"{message}; check the disk of the scratch folder (TMPDIR)")
