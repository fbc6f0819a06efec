"""A pass: one listing, then every shard that something waits for, in an order left to chance.

Chance keeps compilers apart that begin together; the shards with more waiting come first more
often. Several threads work at once, as the merge lets go of the interpreter.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from dfq.ambient import Chance
from dfq.compiler.compiling import Compiled, Work, compile_shard
from dfq.compiler.descriptor import Descriptor
from dfq.compiler.inbox import MAX_BYTES, MAX_FILES, bounded
from dfq.compiler.listing import MAX_LISTED, Listing, list_index
from dfq.compiler.lock import LOCK_SECONDS, Keeper, sweep
from dfq.compiler.manifest import entry_of, update
from dfq.compiler.paths import is_own, kind_of
from dfq.compiler.refile import refile_flat
from dfq.compiler.reports import SETTLED, CompileReport, Plan
from dfq.compiler.site import SchemaGrew, Site
from dfq.errors import QueueBusy, QueueUnavailable
from dfq.store import BodyTooLarge, Stored

#: Passes of one call, each with something left by the bounds of the one before.
MAX_PASSES: Final = 1000


@dataclass(frozen=True)
class Bounds:
    """How much one pass takes on."""

    #: Inbox files and bytes merged into a shard at once.
    max_files: int = MAX_FILES
    max_bytes: int = MAX_BYTES
    #: Shards at once.
    parallel: int = 2
    #: Keys of a listing.
    max_listed: int = MAX_LISTED
    #: How long a lock outlives its holder; it is renewed three times as often.
    lock_seconds: float = LOCK_SECONDS


@dataclass
class Pass:
    """One pass over an index."""

    site: Site
    bounds: Bounds = field(default_factory=Bounds)
    on_progress: Callable[[int, int], None] = lambda _done, _total: None
    stop: threading.Event = field(default_factory=threading.Event)
    #: Only these shards; None: all.
    only: Sequence[str] | None = None
    #: Where the listing begins, if the one before did not reach the end.
    after: str = ""

    def __post_init__(self) -> None:
        self._mutex = threading.Lock()
        self._done = 0
        self._total = 0
        #: The columns grew meanwhile: what was left because of that is for another pass.
        self.grew = False

    def run(self) -> CompileReport:
        """Compile what waits."""
        begin, self.grew = self.after, False
        try:
            return self._run()
        finally:
            if self.grew:
                self.after = begin

    def _run(self) -> CompileReport:
        self.site.ensure_safe()
        self.site.sweep()
        descriptor = self.site.refresh()
        listing = list_index(self.site.store, self.after, limit=self.bounds.max_listed)
        complete = listing.complete and not self.after and not listing.unreadable
        self.after = listing.rest
        report = CompileReport(ignored=listing.ignored(self.site.store), passes=1)
        self._total = listing.files()
        if self.only is None:
            try:
                complete = self._refile(descriptor, listing, report) and complete
            except SchemaGrew:
                self.grew = True
                report.waiting = listing.files()
                return report
        elif listing.flat:
            complete = False
        works = self._works(listing, complete)
        busy = {work.shard for work in works}
        compiled: list[Compiled] = []
        try:
            self._compile(descriptor, works, compiled)
        finally:
            self._note(descriptor, compiled)
        self._sweep([lock for shard, lock in listing.locks.items() if shard not in busy])
        report.shards = sorted((one.report for one in compiled), key=lambda one: one.shard)
        waiting = listing.files() + sum(one.refiled for one in report.shards)
        report.waiting = max(0, waiting - report.files)
        return report

    def _refile(self, descriptor: Descriptor, listing: Listing, report: CompileReport) -> bool:
        """Sort flat files into the inboxes; whether that was all of them."""
        if not listing.flat:
            return True
        done = refile_flat(self.site, descriptor, listing.flat)
        report.flat_files, report.flat_records = done.files, done.records
        report.flat_quarantined = done.quarantined
        self._step(done.files)
        for shard, entries in done.entries.items():
            known = {entry.key for entry in listing.waiting.get(shard, [])}
            new = [entry for entry in entries if entry.key not in known]
            listing.waiting.setdefault(shard, []).extend(new)
            self._total += len(new)
        # One that is gone was moved by somebody else, to a place that was not listed yet.
        return done.files == len(listing.flat)

    def _works(self, listing: Listing, complete: bool) -> list[Work]:
        works = []
        # What others named may hold records of any shard.
        foreign = {
            shard
            for shard, entries in listing.waiting.items()
            if not all(is_own(entry.key) for entry in entries)
        }
        for shard, entries in sorted(listing.waiting.items()):
            if self.only is not None and shard not in self.only:
                continue
            taken = bounded(entries, self.bounds.max_files, self.bounds.max_bytes)
            is_all = complete and len(taken) == len(entries) and foreign <= {shard}
            works.append(
                Work(
                    shard,
                    taken,
                    is_all,
                    lock_seen=shard in listing.locks,
                    lock_seconds=self.bounds.lock_seconds,
                )
            )
        return works

    def _compile(self, descriptor: Descriptor, works: list[Work], done: list[Compiled]) -> None:
        threads = min(self.bounds.parallel, len(works))
        with Keeper(self.bounds.lock_seconds / 3) as keeper:
            if threads <= 1:
                self._work(descriptor, works, keeper, done)
                return
            with ThreadPoolExecutor(threads, "dfq-compile") as pool:
                futures = [
                    pool.submit(self._work, descriptor, works, keeper, done) for _ in range(threads)
                ]
                try:
                    wait(futures, return_when=FIRST_EXCEPTION)
                except BaseException:
                    self.stop.set()
                    raise
                for future in futures:
                    future.result()

    def _work(
        self, descriptor: Descriptor, works: list[Work], keeper: Keeper, done: list[Compiled]
    ) -> None:
        """Draw shards until none is left."""
        while not self.stop.is_set():
            with self._mutex:
                if not works:
                    return
                work = works.pop(draw([len(one.entries) for one in works], self.site.chance))
            try:
                compiled = compile_shard(self.site, descriptor, work, keeper)
            except SchemaGrew:
                # The next pass knows the new columns.
                with self._mutex:
                    self.grew = True
                    works.clear()
                return
            except BaseException:
                with self._mutex:
                    works.clear()
                raise
            done.append(compiled)
            self._step(len(work.entries))

    def _sweep(self, locks: Sequence[Stored]) -> None:
        """Remove what the dead left on shards that have nothing to do; most need no look."""
        over = self.site.wall() - self.bounds.lock_seconds
        for lock in locks:
            if lock.modified < over:
                with suppress(QueueUnavailable, QueueBusy):
                    sweep(self.site, kind_of(lock.key)[1])

    def _note(self, descriptor: Descriptor, compiled: list[Compiled]) -> None:
        entries = {
            one.report.shard: entry_of(descriptor, one)
            for one in compiled
            if one.report.outcome in SETTLED and one.etag
        }
        # Derived: what has been compiled is no less compiled without it.
        with suppress(QueueUnavailable, QueueBusy, BodyTooLarge):
            if entries:
                update(self.site, entries)

    def _step(self, count: int) -> None:
        with self._mutex:
            self._done += count
            done, total = self._done, self._total
        self.on_progress(done, total)


def draw(weights: Sequence[int], chance: Chance) -> int:
    """One of these, more often the heavier ones."""
    left = chance.uniform(0.0, float(sum(weights)))
    for index, weight in enumerate(weights):
        left -= weight
        if left < 0:
            return index
    return len(weights) - 1


def compile_index(one: Pass) -> CompileReport:
    """Passes until nothing is left that one of them could do."""
    report = one.run()
    latest = report
    for _ in range(MAX_PASSES - 1):
        progress = latest.files > 0 or bool(one.after) or one.grew
        if one.stop.is_set() or not progress or not (latest.waiting or one.after):
            break
        latest = one.run()
        report.add(latest)
    return report


def plan(site: Site) -> Plan:
    """What a pass would find."""
    site.refresh()
    listing = list_index(site.store)
    waiting = {shard: len(entries) for shard, entries in sorted(listing.waiting.items())}
    ignored = listing.ignored(site.store)
    return Plan(waiting, listing.bytes(), len(listing.flat), sorted(listing.locks), ignored)
