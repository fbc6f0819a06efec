"""Sweeping: putting right what crashes left behind, and what time did.

Only what may need it is read. A task that waits without a lease needs a sweep only when its time
to live is over, and a claim sees to that as well: so while claims find work, tasks that nobody has
read yet are left to them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from dfq.engines.s3.applying import KEPT_SECONDS, Standing
from dfq.engines.s3.beats import GRANTED_SECONDS
from dfq.engines.s3.bodies import Damaged, LeaseFile, LeftAlone, TaskFile
from dfq.engines.s3.bucket import Bucket
from dfq.engines.s3.claiming import Claiming
from dfq.engines.s3.finished import FOLD_RECORDS, OTHERS_SECONDS, Finished
from dfq.engines.s3.keys import (
    FAILED,
    LANES,
    PENDING,
    SWEPT,
    WORKERS,
    failed_id,
    failed_key,
    lease_key,
    read_lane,
    task_key,
)
from dfq.engines.s3.looking import Looking
from dfq.engines.s3.register import Register
from dfq.engines.s3.rescuing import VOID_SECONDS, Rescuing
from dfq.engines.s3.standings import Standings, is_without_task
from dfq.engines.s3.view import Sighting, add_sighting, batches
from dfq.errors import WrongState
from dfq.record import SweepReport
from dfq.store import MAX_PAGE, Stored
from dfq.task import ErrorKind

#: What a crash may leave behind (a mark without its task, the beat of a dead process) is deleted
#: when it is so old that no one can be about to use it.
LITTER_SECONDS: Final = 86_400.0
#: The time to live is remembered of so many tasks that wait; of the rest it is read again.
_REMEMBERED: Final = 20_000
_READ_AT_ONCE: Final = 2 * FOLD_RECORDS

#: Ends a pending task; False if somebody was faster.
Fail = Callable[[Standing, str, ErrorKind], bool]


@dataclass
class _Listing:
    """What one sweep sees."""

    sightings: dict[str, Sighting] = field(default_factory=dict)
    failures: dict[str, Stored] = field(default_factory=dict)
    lanes: list[Stored] = field(default_factory=list)
    beats: list[Stored] = field(default_factory=list)

    def add(self, stored: Stored) -> None:
        if stored.key.startswith(PENDING):
            add_sighting(self.sightings, stored)
        elif stored.key.startswith(FAILED):
            self.failures[stored.key] = stored
        elif stored.key.startswith(LANES):
            self.lanes.append(stored)
        elif stored.key.startswith(WORKERS):
            self.beats.append(stored)


class Sweeping:
    """The sweeps of one handle."""

    def __init__(
        self,
        bucket: Bucket,
        register: Register,
        standings: Standings,
        looking: Looking,
        finished: Finished,
        claiming: Claiming,
        rescuing: Rescuing,
        fail: Fail,
    ) -> None:
        self._bucket = bucket
        self._register = register
        self._standings = standings
        self._looking = looking
        self._finished = finished
        self._claiming = claiming
        self._rescuing = rescuing
        self._fail = fail
        # The records of failures that a sweep has looked at.
        self._failures_seen: dict[str, Stored] = {}
        # task_id -> the version of a task that waits, and until when it may
        self._waiting: dict[str, tuple[str, float | None]] = {}

    def sweep(self) -> SweepReport:
        """Put right what crashes left behind, and what time did."""
        rescuing = self._rescuing
        ended, failed = rescuing.ended_silent, rescuing.failed
        quarantined = rescuing.quarantined
        listing = self._list()
        expired = self._see_to_waiting(listing) + self._see_to_held(listing)
        archived, dropped, removed = self._see_to_ended(listing)
        removed += self._clear_late_failures(listing) + self._clear_litter(listing)
        return SweepReport(
            expired_leases=rescuing.ended_silent - ended,
            failed=rescuing.failed - failed + expired,
            temporary_removed=removed,
            quarantined=rescuing.quarantined - quarantined,
            archived=archived,
            dropped=dropped + self._drop_old(),
        )

    def _list(self) -> _Listing:
        """All but what is completed; a small queue is seen with one listing."""
        bucket = self._bucket
        page = bucket.store.list("", SWEPT, MAX_PAGE)
        entries: Iterable[Stored] = page.entries
        if page.next is not None:
            # Tasks before failures: a task that moves to there is seen at least once.
            prefixes = (PENDING, FAILED, LANES, WORKERS)
            entries = itertools.chain.from_iterable(map(bucket.list_all, prefixes))
        listing = _Listing()
        for stored in entries:
            listing.add(stored)
        return listing

    # Tasks that wait

    def _see_to_waiting(self, listing: _Listing) -> int:
        """Fail the tasks whose time to live is over, and set damaged ones aside."""
        waiting = {
            one.task_id: one
            for one in listing.sightings.values()
            if one.lease is None and not is_without_task(one)
        }
        for task_id in self._waiting.keys() - waiting.keys():
            del self._waiting[task_id]
        expired = 0
        unread = []
        for one in waiting.values():
            known = self._known_end(one)
            if known is None:
                unread.append(one)
            else:
                expired += self._expire_if_over(one, known[0])
        if self._claiming.is_busy:
            return expired
        for lot in batches(iter(unread), _READ_AT_ONCE):
            for one, end in zip(lot, self._bucket.map(self._read_end, lot), strict=True):
                if isinstance(end, Damaged):
                    self._rescuing.set_aside(one)
                else:
                    expired += self._expire_if_over(one, end)
        return expired

    def _known_end(self, one: Sighting) -> tuple[float | None] | None:
        """When the time to live of a task is over, if that is known of this version."""
        assert one.task is not None
        version, end = self._waiting.get(one.task_id, ("", None))
        if version == one.task.etag:
            return (end,)
        if self._claiming.view.is_left_alone(one):
            return (None,)
        task = self._claiming.view.remembered(one)
        return None if task is None else (task.checked.expires_at,)

    def _read_end(self, one: Sighting) -> float | Damaged | None:
        assert one.task is not None
        version, end = one.task.etag, None
        try:
            task = self._bucket.read_task(one.task_id, one.place)
        except LeftAlone:
            pass
        except Damaged as damage:
            return damage
        else:
            if task is None:
                return None
            version, end = task.etag, task.checked.expires_at
        if len(self._waiting) < _REMEMBERED:
            self._waiting[one.task_id] = version, end
        return end

    def _expire_if_over(self, one: Sighting, end: float | None) -> bool:
        if end is None or end > self._bucket.clock.wall():
            return False
        try:
            stands = self._standings.now(one.task_id, one.place)
        except WrongState:
            return False
        return self._expire(stands)

    def _expire(self, stands: Standing) -> bool:
        if stands.where != "pending" or not self._life_is_over(stands.task):
            return False
        return self._fail(stands, "nobody claimed it within its time to live", "expired")

    def _life_is_over(self, task: TaskFile | None) -> bool:
        if task is None or task.checked.expires_at is None:
            return False
        return task.checked.expires_at <= self._bucket.clock.wall()

    # Tasks that are held, or were

    def _see_to_held(self, listing: _Listing) -> int:
        """End the leases of the silent, and carry out what is committed."""
        expired = 0
        for one in listing.sightings.values():
            if one.lease is None or is_without_task(one):
                continue
            if self._rescuing.settle(one):
                expired += self._expire_if_over(one, 0.0)
        return expired

    def _see_to_ended(self, listing: _Listing) -> tuple[int, int, int]:
        """Leases without a task: records are folded or dropped, the rest is deleted in time."""
        now = self._bucket.clock.wall()
        # Others look after their own records, and we did after ours.
        latest = max(now - OTHERS_SECONDS, self._dropped_before())
        ended = (
            one
            for one in listing.sightings.values()
            if one.lease is not None and is_without_task(one) and one.lease.modified <= latest
        )
        folded = dropped = removed = 0
        for lot in batches(ended, _READ_AT_ONCE):
            records: list[LeaseFile] = []
            for one, stands in zip(lot, self._bucket.map(self._standing, lot), strict=True):
                if stands is None:
                    continue
                lease = stands.lease if stands.where == "completed" else None
                if lease is not None and one.task is None:
                    if lease.ended_at <= self._dropped_before():
                        dropped += self._register.clear(lease)
                    elif now - lease.modified >= self._folded_after(lease):
                        records.append(lease)
                elif stands.where == "nowhere" and stands.leftover is not None:
                    may_be_requeued = failed_key(one.task_id) in listing.failures
                    removed += self._let_go(stands.leftover, now, may_be_requeued)
            folded += self._finished.fold_for_others(records)
        return folded, dropped, removed

    def _standing(self, one: Sighting) -> Standing | None:
        try:
            return self._standings.listed(one)
        except WrongState:
            return None

    def _folded_after(self, lease: LeaseFile) -> float:
        return KEPT_SECONDS if lease.session == self._bucket.session else OTHERS_SECONDS

    def _let_go(self, lease: LeaseFile, now: float, may_be_requeued: bool) -> bool:
        """Delete a lease without a task, once it is old enough.

        A store that can't delete on a condition keeps it while the task may come back, and a day
        longer.
        """
        alive = max(lease.seconds(self._bucket.policy), VOID_SECONDS, KEPT_SECONDS)
        if lease.too_new or now - lease.modified < alive + GRANTED_SECONDS:
            return False
        store = self._bucket.store
        if store.conditional_delete:
            return self._register.clear(lease)
        if may_be_requeued or (lease.state == "free" and now - lease.modified < LITTER_SECONDS):
            return False
        if lease.state == "free":
            store.delete_many([task_key(lease.place), lease_key(lease.place)])
            return True
        return self._register.clear(lease)

    # What else is left

    def _clear_late_failures(self, listing: _Listing) -> int:
        """Delete records of failures that arrived when their task was requeued, or completed.

        Each is looked at once: a copy that comes late is another object to this.
        """
        stored = listing.failures
        fresh = {key for key, one in stored.items() if self._failures_seen.get(key) != one}
        self._failures_seen = stored
        ids = {failed_id(key) for key in fresh} - {""}
        completed = self._finished.known(sorted(ids))
        removed = 0
        for task_id in ids:
            one = listing.sightings.get(task_id)
            stands = None if one is None else self._standing_now(one)
            key = failed_key(task_id)
            if task_id in completed or (stands is not None and stands.where == "completed"):
                removed += self._bucket.erase(key, stored[key].etag)
            elif stands is not None and stands.where in ("pending", "leased"):
                failed = self._looking.readable_failed(task_id)
                assert stands.task is not None
                if failed is not None and failed.fence <= stands.task.fence:
                    removed += self._bucket.vacate(key, failed.etag)
        return removed

    def _standing_now(self, one: Sighting) -> Standing | None:
        try:
            return self._standings.now(one.task_id, one.place)
        except WrongState:
            return None

    def _clear_litter(self, listing: _Listing) -> int:
        """Delete marks without a task, and beats of the dead."""
        now = self._bucket.clock.wall()
        litter = [one.key for one in self._marks_without_task(listing) if _is_old(one, now)]
        litter += [one.key for one in listing.beats if _is_old(one, now)]
        self._bucket.store.delete_many(litter)
        return len(litter)

    def _marks_without_task(self, listing: _Listing) -> Iterator[Stored]:
        for stored in listing.lanes:
            lane = read_lane(stored.key)
            if lane is not None:
                one = listing.sightings.get(lane[1])
                if one is None or is_without_task(one):
                    yield stored

    def _dropped_before(self) -> float:
        """What was completed before this moment is dropped."""
        policy = self._bucket.policy
        if policy.finished != "drop":
            return float("-inf")
        return self._bucket.clock.wall() - policy.finished_after_seconds

    def _drop_old(self) -> int:
        """Delete the records that are old enough, by the dates of their objects alone."""
        if self._bucket.policy.finished != "drop":
            return 0
        return self._finished.drop(self._dropped_before())


def _is_old(stored: Stored, now: float) -> bool:
    return now - stored.modified >= LITTER_SECONDS
