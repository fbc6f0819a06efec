"""What came of compiling: values to show and to print as JSON."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal

#: - compiled: the shard was written;
#: - unchanged: the inbox had nothing new for it;
#: - locked: another compiler is at it;
#: - lost: another compiler wrote it first, and the inbox files are left to the next pass;
#: - unsure: nobody knows whether it was written; as for lost;
#: - busy: the store asked to come back later;
#: - damaged: it can't be read, and was left as it is.
Outcome = Literal["compiled", "unchanged", "locked", "lost", "unsure", "busy", "damaged"]

#: The shard is done with: its inbox files are gone.
SETTLED: tuple[Outcome, ...] = ("compiled", "unchanged")


@dataclass(frozen=True)
class Reject:
    """A record that can't be merged, and why."""

    source: str
    record: int
    reason: str
    message: str


@dataclass(frozen=True)
class ShardReport:
    """What came of one shard."""

    shard: str
    outcome: Outcome
    #: Why, if it did not go well.
    message: str = ""
    #: Inbox files merged and deleted.
    files: int = 0
    #: Inbox records that are in the shard now, and those that were older than what was there.
    taken: int = 0
    superseded: int = 0
    #: What the shard holds now.
    records: int = 0
    tombstones: int = 0
    bytes: int = 0
    #: Old marks of deletion that were dropped.
    dropped: int = 0
    #: Keys rewritten by the key rule, and records with columns missing at the end.
    normalised: int = 0
    padded: int = 0
    #: Records moved into the inbox of the shard they belong to.
    refiled: int = 0
    quarantined: tuple[Reject, ...] = ()
    #: Records more than a day ahead of the store's clock: kept all the same.
    future: tuple[tuple[str, int], ...] = ()


@dataclass
class CompileReport:
    """What came of a pass over all shards."""

    shards: list[ShardReport] = field(default_factory=list)
    #: Flat files taken into the inboxes of their shards, and the records in them.
    flat_files: int = 0
    flat_records: int = 0
    flat_quarantined: list[Reject] = field(default_factory=list)
    #: Inbox files that wait still: bounds of the pass, locks, races.
    waiting: int = 0
    #: In the inbox: links, files that can't be read, names that no store takes.
    ignored: list[str] = field(default_factory=list)
    passes: int = 0

    @property
    def files(self) -> int:
        """Inbox files that are done with."""
        return sum(one.files for one in self.shards) + self.flat_files

    @property
    def quarantined(self) -> list[Reject]:
        """What could not be merged."""
        return [*self.flat_quarantined, *(one for s in self.shards for one in s.quarantined)]

    @property
    def damaged(self) -> list[ShardReport]:
        """The shards that need somebody."""
        return [one for one in self.shards if one.outcome == "damaged"]

    def add(self, other: CompileReport) -> None:
        """Put a later pass beside this one."""
        self.shards += other.shards
        self.flat_files += other.flat_files
        self.flat_records += other.flat_records
        self.flat_quarantined += other.flat_quarantined
        self.waiting, self.ignored = other.waiting, other.ignored
        self.passes += other.passes

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {"files": self.files, **dataclasses.asdict(self)}


@dataclass(frozen=True)
class Plan:
    """What a pass would do."""

    #: Inbox files by shard, and their bytes in all.
    waiting: dict[str, int]
    bytes: int
    flat_files: int
    locked: list[str]
    ignored: list[str]


@dataclass(frozen=True)
class IndexStats:
    """What an index holds, by its manifest and one listing."""

    url: str
    shards: int
    records: int
    tombstones: int
    bytes: int
    #: The newest time of any record, as text; empty if there is none.
    newest_updated_at: str
    waiting_files: int
    waiting_bytes: int
    flat_files: int
    quarantined: int
    locked: list[str]
    #: Shards that the manifest does not tell the truth about; `dfq index rebuild` mends it.
    stale: list[str]
