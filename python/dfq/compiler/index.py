"""An index: records under keys, put by many, compiled into sorted shards, read by anything.

>>> import dfq
>>> index = dfq.Index.create("memory://shops", ["domain", "city"])
>>> index.put({"domain": "example.com", "city": "Bern"})
>>> index.get("example.com")["city"]
'Bern'
>>> index.compile().files
1
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Self

from dfq import _core
from dfq.ambient import SYSTEM_CHANCE, SYSTEM_CLOCK, Chance, Clock
from dfq.compiler.descriptor import (
    DEFAULT_KEEP_DELETED_DAYS,
    Descriptor,
    Field,
    new_descriptor,
    read_descriptor,
)
from dfq.compiler.passes import Bounds, Pass, compile_index, plan
from dfq.compiler.paths import DESCRIPTOR, new_inbox_key
from dfq.compiler.places import open_store
from dfq.compiler.records import row_of, tombstone
from dfq.compiler.reports import CompileReport, IndexStats, Plan
from dfq.compiler.site import Site
from dfq.compiler.watching import Watch
from dfq.errors import InvalidIndex, InvalidRecord, QueueBusy, StoreUnsure
from dfq.record import Finding
from dfq.store import Store

#: put_many writes files no larger than this, unless a single record is.
_FILE_BYTES: Final = 8 * 1024 * 1024
_GROW_TRIES: Final = 5


class Index:
    """A handle on one index. Safe from threads."""

    def __init__(
        self,
        url: str | os.PathLike[str],
        *,
        store: Store | None = None,
        clock: Clock = SYSTEM_CLOCK,
        chance: Chance = SYSTEM_CHANCE,
        worker_id: str | None = None,
        scratch: str | None = None,
    ) -> None:
        """Open the index at a path, ``file:///…``, ``s3://bucket/prefix`` or ``memory://name``.

        ``scratch``: the folder for files on their way; the system's temporary one if not given.
        """
        self._site = _site(url, store, clock, chance, worker_id, scratch, create=False)
        try:
            self._site.refresh()
        except BaseException:
            self.close()
            raise

    @classmethod
    def create(
        cls,
        url: str | os.PathLike[str],
        columns: Sequence[str | Field],
        *,
        key: str | None = None,
        updated_at: str = "updated_at",
        deleted_at: str = "deleted_at",
        key_rule: str = "exact",
        keep_deleted_days: float = DEFAULT_KEEP_DELETED_DAYS,
        name: str = "index",
        store: Store | None = None,
        clock: Clock = SYSTEM_CLOCK,
        chance: Chance = SYSTEM_CHANCE,
        worker_id: str | None = None,
        scratch: str | None = None,
    ) -> Index:
        """Make an index, and open it. One that is there already must have these columns, or fewer:
        then those at the end are added.

        ``columns``: ``name`` or ``name:type``; the key is the first unless named.
        """
        wanted = new_descriptor(
            columns,
            key=key,
            updated_at=updated_at,
            deleted_at=deleted_at,
            key_rule=key_rule,
            keep_deleted_days=keep_deleted_days,
            name=name,
        )
        site = _site(url, store, clock, chance, worker_id, scratch, create=True)
        try:
            site.ensure_safe()
            written = site.writes.create(DESCRIPTOR, wanted.dumps(site.writes.nonce()))
            if not written.won and site.refresh() != wanted:
                _grow(site, lambda there: _same_but_grown(there, wanted))
        except BaseException:
            site.store.close()
            raise
        index = cls.__new__(cls)
        index._site = site
        site.refresh()
        return index

    @property
    def url(self) -> str:
        """Where it is."""
        return self._site.url

    @property
    def descriptor(self) -> Descriptor:
        """Its columns and rules, as they were last read."""
        return self._site.descriptor

    @property
    def store(self) -> Store:
        """What it is kept in."""
        return self._site.store

    def put(self, record: Mapping[str, Any]) -> None:
        """Write a record; without a time of its own it is of now, by the store's clock.

        It is there for ``get`` at once, and in its shard after the next compile. Of several with
        one key the newest counts, in whatever order they come.
        """
        self.put_many([record])

    def put_many(self, records: Iterable[Mapping[str, Any]]) -> int:
        """Write records, those of a shard in one file; how many. All are checked first."""
        return self.put_rows(self.rows(records))

    def rows(self, records: Iterable[Mapping[str, Any]]) -> list[list[str]]:
        """Records as rows for :meth:`put_rows`; raises InvalidRecord for one that does not fit.

        To be written twice, should it be in doubt, without being of two times.
        """
        return [self._row(record) for record in records]

    def _row(self, record: Any) -> list[str]:
        try:
            return row_of(self.descriptor, record, self._site.stamp)
        except InvalidRecord:
            # Somebody may have added the column meanwhile.
            before = self.descriptor.columns
            if not isinstance(record, Mapping) or record.keys() <= set(before):
                raise
            if self._site.refresh().columns == before:
                raise
            return row_of(self.descriptor, record, self._site.stamp)

    def delete(self, key: str) -> None:
        """Mark a record as deleted from now on. What is older stays away, even if it comes late."""
        self.put_rows([tombstone(self.descriptor, key, self._site.stamp())])

    def get(self, key: str, *, deleted: bool = False) -> dict[str, str] | None:
        """The newest record of a key; None if there is none or it is deleted.

        Reads one shard and the inbox of that shard. Files that lie in no shard's inbox are seen
        once they were compiled.
        """
        from dfq.compiler import reading

        found = reading.get(self._site, key)
        if found is not None and found[self.descriptor.deleted_at] and not deleted:
            return None
        return found

    def scan(self, *, shard: str | None = None, deleted: bool = False) -> Iterator[dict[str, str]]:
        """All records, shard after shard, in the order of keys within each."""
        from dfq.compiler import reading

        return reading.scan(self._site, shard=shard, deleted=deleted)

    def compile(
        self,
        *,
        bounds: Bounds | None = None,
        shards: Sequence[str] | None = None,
        on_progress: Callable[[int, int], None] = lambda _done, _total: None,
        stop: threading.Event | None = None,
    ) -> CompileReport:
        """Fold what waits into the shards, until nothing is left that this process could do.

        Raises what the store raises; a shard that can't be read is in the report.
        """
        return compile_index(self._pass(bounds, shards, on_progress, stop))

    def plan(self) -> Plan:
        """What a compile would find; nothing is changed."""
        return plan(self._site)

    def watch(
        self,
        *,
        stop: threading.Event,
        on_pass: Callable[[CompileReport], None] = lambda _report: None,
        on_error: Callable[[Exception], None] = lambda _error: None,
        on_progress: Callable[[int, int], None] = lambda _done, _total: None,
        bounds: Bounds | None = None,
        first_pause_seconds: float = 1.0,
        longest_pause_seconds: float = 60.0,
    ) -> None:
        """Compile whenever something waits, until ``stop`` is set."""
        one = self._pass(bounds, None, on_progress, stop)
        Watch(one, on_pass, on_error, first_pause_seconds, longest_pause_seconds).run()

    def stats(self) -> IndexStats:
        """What it holds, by its manifest and one listing."""
        from dfq.compiler.verifying import stats

        return stats(self._site)

    def verify(
        self, on_progress: Callable[[int, int], None] = lambda _done, _total: None
    ) -> list[Finding]:
        """Read every shard and look for trouble; nothing is changed."""
        from dfq.compiler.verifying import verify

        return verify(self._site, on_progress)

    def rebuild(
        self, on_progress: Callable[[int, int], None] = lambda _done, _total: None
    ) -> list[Finding]:
        """Write the manifest anew from the shards; what could not be read."""
        from dfq.compiler.verifying import rebuild

        return rebuild(self._site, on_progress)

    def grow(self, *columns: str | Field) -> Descriptor:
        """Add columns at the end."""
        self._site.ensure_safe()
        return _grow(self._site, lambda there: there.grown(columns))

    def close(self) -> None:
        """Let go of connections."""
        self._site.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<dfq.Index {self.url}>"

    def _pass(
        self,
        bounds: Bounds | None,
        shards: Sequence[str] | None,
        on_progress: Callable[[int, int], None],
        stop: threading.Event | None,
    ) -> Pass:
        return Pass(
            self._site,
            bounds or Bounds(),
            on_progress,
            stop or threading.Event(),
            only=shards,
        )

    def put_rows(self, rows: list[list[str]]) -> int:
        """Write rows that :meth:`rows` made; how many."""
        site, key = self._site, self.descriptor.column(self.descriptor.key)
        site.ensure_safe()
        by_shard: dict[str, list[list[str]]] = {}
        for row in rows:
            by_shard.setdefault(_core.shard_of(row[key]), []).append(row)
        files = [(shard, lot) for shard, mine in sorted(by_shard.items()) for lot in _lots(mine)]
        for _ in site.map(self._put_file, files):
            pass
        return len(rows)

    def _put_file(self, file: tuple[str, list[list[str]]]) -> None:
        shard, rows = file
        site = self._site
        body = _core.join_usv(rows)
        for _ in range(3):
            key = new_inbox_key(shard, site, site.chance)
            written = site.writes.create(key, body)
            if written.won:
                return
            if written.end == "vanished":
                # Written, and compiled before we looked; or not. Once more does no harm.
                continue
        raise StoreUnsure(
            f"{site.url} did not take a record after three tries; whether one of them was done is "
            "unknown. Put it again: the newest counts"
        )


def _lots(rows: list[list[str]]) -> Iterator[list[list[str]]]:
    lot: list[list[str]] = []
    size = 0
    for row in rows:
        length = sum(len(cell.encode()) for cell in row)
        if lot and size + length > _FILE_BYTES:
            yield lot
            lot, size = [], 0
        lot.append(row)
        size += length
    if lot:
        yield lot


def _site(
    url: str | os.PathLike[str],
    store: Store | None,
    clock: Clock,
    chance: Chance,
    worker_id: str | None,
    scratch: str | None,
    *,
    create: bool,
) -> Site:
    if store is None:
        store, shown = open_store(url, create=create, clock=clock, chance=chance)
    else:
        shown = os.fspath(url)
    return Site(
        store,
        url=shown,
        clock=clock,
        chance=chance,
        worker_id=worker_id or f"{os.uname().nodename}-{os.getpid()}-{chance.bits(16):04x}",
        scratch=scratch,
    )


def _grow(site: Site, change: Callable[[Descriptor], Descriptor]) -> Descriptor:
    """Change the columns by replacing the version that was read."""
    for _ in range(_GROW_TRIES):
        found = site.store.read(DESCRIPTOR)
        if found is None:
            site.refresh()
            continue
        there = read_descriptor(found.body, f"{site.url}/{DESCRIPTOR}")
        wanted = change(there)
        wanted.check_grown_from(there)
        if wanted == there:
            break
        body = wanted.dumps(site.writes.nonce())
        if site.writes.replace(DESCRIPTOR, body, found.etag).won:
            break
    else:
        raise QueueBusy(f"{site.url}/{DESCRIPTOR} is changed by others all the time; try again")
    return site.refresh()


def _same_but_grown(there: Descriptor, wanted: Descriptor) -> Descriptor:
    """What is wanted, as a growth of what is there; refused if it is something else."""
    wanted.check_grown_from(there)
    if wanted.keep_deleted_days != there.keep_deleted_days:
        raise InvalidIndex(
            f"the index at hand keeps marks of deletion for {there.keep_deleted_days:g} days, not "
            f"{wanted.keep_deleted_days:g}; change keep_deleted_days in {DESCRIPTOR}"
        )
    return there.grown(wanted.fields[len(there.fields) :])
