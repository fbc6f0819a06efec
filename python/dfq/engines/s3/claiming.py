"""Taking tasks: the lease first, then a look at what was taken.

Most tasks that wait are ready and wanted, so a claim writes the lease and only then reads the
task: one write and one read. A task that turns out to be not ready, or not wanted, is let go and
remembered; then, for a while, tasks are read before they are taken.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Literal

from dfq.engines.s3.applying import Applying, fence_of, standing
from dfq.engines.s3.beats import GRANTED_SECONDS, Beats, taken
from dfq.engines.s3.bodies import Damaged, LeaseFile, LeftAlone, TaskFile, error_fields, stamp
from dfq.engines.s3.bucket import Bucket
from dfq.engines.s3.keys import PAUSED
from dfq.engines.s3.looking import Looking
from dfq.engines.s3.quarantine import set_aside
from dfq.engines.s3.register import Register
from dfq.engines.s3.view import Sighting, View
from dfq.errors import QueueBusy, QueueUnavailable
from dfq.lease import Lease
from dfq.record import Filter
from dfq.store import Stored
from dfq.task import TaskError

#: After a task that was taken in vain, so many are read before they are taken.
_WARY: Final = 20
#: Pages of a large queue that one claim looks at, and leases of others.
_PAGES: Final = 20
_LEASES: Final = 64
#: A lease that means nothing is left alone for so long: its writer may be about to mend it.
VOID_SECONDS: Final = 5.0

_Verdict = Literal["ready", "later", "expired"]


class Claiming:
    """The claims of one handle."""

    def __init__(
        self,
        bucket: Bucket,
        register: Register,
        applying: Applying,
        beats: Beats,
        looking: Looking,
        *,
        attention_seconds: float,
    ) -> None:
        self._bucket = bucket
        self._register = register
        self._applying = applying
        self._beats = beats
        self._looking = looking
        self._attention_seconds = attention_seconds
        self.view = View(bucket)
        #: Somebody was faster since the last look: what was seen is out of date.
        self._beaten = False
        self._wary = 0
        self._pause_seen_at: float | None = None
        # task_id -> until when, by the store's clock, its lease can't be over
        self._alive: dict[str, float] = {}
        # task_id -> the version of its task.json that is not for us
        self._left_alone: dict[str, Stored] = {}
        self._turn = threading.Lock()

    def claim(self, limit: int, worker_id: str, seconds: float, filter: Filter) -> list[Lease]:
        """Up to ``limit`` tasks. What was taken before the store failed is not lost."""
        leases: list[Lease] = []
        try:
            self._claim(leases, limit, worker_id, seconds, filter)
        except (QueueUnavailable, QueueBusy):
            if not leases:
                raise
        return leases

    def _claim(
        self, leases: list[Lease], limit: int, worker_id: str, seconds: float, filter: Filter
    ) -> None:
        def attempt(sighting: Sighting) -> Lease | None:
            return self._attempt(sighting, worker_id, seconds, filter)

        tried: set[str] = set()
        looked = self.view.age() >= self._attention_seconds
        if looked:
            self.view.look()
        for _ in range(_PAGES):
            if self.view.paused and self._is_paused():
                return
            self._draw(leases, limit, filter, attempt, tried)
            if len(leases) >= limit or self.view.paused:
                return
            if self._beaten:
                # A look costs no more than the next lost race, and shows what others took.
                self._beaten = False
                self.view.look_elsewhere()
                looked = True
                continue
            if self._free_leases() or (looked and self.view.look_on()):
                continue
            if looked:
                return
            # All that is known is tried or not ready: see what is new.
            self.view.look()
            looked = True

    def _is_paused(self) -> bool:
        """See whether the queue is paused, if the last look is too old to tell."""
        boot = self._bucket.clock.boot()
        seen_at = max(self.view.looked_at or 0.0, self._pause_seen_at or 0.0)
        if boot - seen_at >= self._attention_seconds / 6:
            self.view.paused = self._bucket.has(PAUSED)
            self._pause_seen_at = boot
        return self.view.paused

    def _draw(
        self,
        leases: list[Lease],
        limit: int,
        filter: Filter,
        attempt: Callable[[Sighting], Lease | None],
        tried: set[str],
    ) -> None:
        """Try what was seen, the best first, until there are enough leases."""
        unwanted: list[Sighting] = []
        try:
            while len(leases) < limit and not self._beaten:
                batch: list[Sighting] = []
                most = min(limit - len(leases), self._bucket.parallel)
                for sighting in self.view.draw():
                    if sighting.task_id in tried or self._known_later(sighting, filter):
                        unwanted.append(sighting)
                        continue
                    tried.add(sighting.task_id)
                    batch.append(sighting)
                    if len(batch) == most:
                        break
                if not batch:
                    return
                if self._is_paused():
                    unwanted += batch
                    return
                answers = self._bucket.map(attempt, batch)
                leases.extend(lease for lease in answers if lease is not None)
        finally:
            self.view.put_back(unwanted)

    def _known_later(self, sighting: Sighting, filter: Filter) -> bool:
        """Whether it is known already, without a request, that this is not for us now."""
        if sighting.task is not None and self._left_alone.get(sighting.task_id) == sighting.task:
            return True
        task = self.view.remembered(sighting)
        if task is None:
            return False
        if not filter.matches(task.checked):
            return True
        now = self._bucket.clock.wall()
        checked = task.checked
        if checked.expires_at is not None and checked.expires_at <= now:
            return False
        if checked.not_before is not None and checked.not_before > now:
            return True
        return any(self.view.waits(dependency) for dependency in checked.depends_on)

    # One task

    def _attempt(
        self, sighting: Sighting, worker_id: str, seconds: float, filter: Filter
    ) -> Lease | None:
        known = self.view.remembered(sighting)
        if known is None and self._wary:
            self._wary -= 1
            known = self._read(sighting, None)
            if known is None:
                return None
        if known is not None and self._judge(known, filter) == "later":
            self.view.put_back([sighting])
            return None
        boot, wall = self._bucket.clock.boot(), self._bucket.clock.wall()
        lease = self._register.take(
            sighting.task_id,
            sighting.place,
            worker_id=worker_id,
            seconds=seconds,
            fence=1 if known is None else known.fence + 1,
            free=sighting.free,
        )
        if lease is None:
            # Whoever was faster works in this place.
            self.view.forget(sighting.task_id)
            self._beaten = True
            return None
        try:
            return self._look_at(sighting, known, lease, seconds, filter, boot, wall)
        except (QueueUnavailable, QueueBusy):
            # What we hold but can't read is nobody's. If this fails too, its time runs out.
            with suppress(QueueUnavailable, QueueBusy):
                self._register.clear(lease)
            raise

    def _look_at(
        self,
        sighting: Sighting,
        known: TaskFile | None,
        lease: LeaseFile,
        seconds: float,
        filter: Filter,
        boot: float,
        wall: float,
    ) -> Lease | None:
        """What was taken: hand it out, or let it go again."""
        self.view.forget(sighting.task_id)
        task = self._read(sighting, lease)
        if task is None:
            self._leave_alone(sighting)
            self._register.clear(lease)
            return None
        if lease.fence <= task.fence:
            # The task was given back before: of all its leases this must be the newest. It may
            # even be this one that ended, if the request that took it came twice.
            written, lease = self._register.renew(lease, task.fence + 1)
            if not written.won:
                return None
        elif not self._stands(lease, task, sighting, known):
            return None
        if self._is_removed_copy(task):
            self._register.clear(lease)
            return None
        verdict = self._judge(task, filter)
        if verdict == "later":
            self._wary = _WARY
            self._register.clear(lease)
            self.view.offer(sighting)
            return None
        if verdict == "expired":
            self._expire(task, lease)
            return None
        held = taken(lease, task, seconds, boot, wall)
        self._beats.hold(held)
        return lease.lease(task.task(self._bucket.policy), held.attempt, renewed=(wall, seconds))

    def _stands(
        self, lease: LeaseFile, task: TaskFile, sighting: Sighting, known: TaskFile | None
    ) -> bool:
        """Whether a lease that was taken is still there; costs nothing if the task is as it was.

        Else one of its earlier versions may have made the lease void, so that somebody let it
        go; and with this version, as it was pushed anew, it looks like the newest.
        """
        seen = {one.etag for one in (sighting.task, known) if one is not None}
        if task.etag in seen:
            return True
        found = self._bucket.read_lease(lease.task_id, lease.place)
        return found is not None and found.etag == lease.etag

    def _read(self, sighting: Sighting, lease: LeaseFile | None) -> TaskFile | None:
        """The task; a damaged one is set aside by whoever holds it."""
        try:
            task = self._bucket.read_task(sighting.task_id, sighting.place)
        except LeftAlone:
            self._leave_alone(sighting)
            return None
        except Damaged as damage:
            if lease is not None:
                set_aside(self._bucket, sighting, str(damage))
            return None
        if task is not None:
            self.view.remember(task)
        return task

    def _leave_alone(self, sighting: Sighting) -> None:
        """Remember this version of a task as none of ours, so as not to try it at every look."""
        self.view.forget(sighting.task_id)
        if len(self._left_alone) > 10_000:
            self._left_alone.clear()
        if sighting.task is not None:
            self._left_alone[sighting.task_id] = sighting.task

    def _judge(self, task: TaskFile, filter: Filter) -> _Verdict:
        now = self._bucket.clock.wall()
        checked = task.checked
        if checked.expires_at is not None and checked.expires_at <= now:
            return "expired"
        if not filter.matches(checked):
            return "later"
        if checked.not_before is not None and checked.not_before > now:
            return "later"
        if any(self.view.waits(dependency) for dependency in checked.depends_on):
            return "later"
        if not all(self._looking.is_completed(one) for one in checked.depends_on):
            return "later"
        return "ready"

    def _is_removed_copy(self, task: TaskFile) -> bool:
        """Remove a copy that came late of a task that has ended."""
        end = self._looking.end_of_copied(task)
        return end is not None and self._applying.remove_task(task, end)

    def _expire(self, task: TaskFile, lease: LeaseFile) -> None:
        """Nobody claimed it in time: our lease on it becomes its end."""
        now = self._bucket.clock.wall()
        error = TaskError(
            at=now,
            attempt=task.checked.attempts,
            fence=task.fence,
            worker_id=None,
            kind="expired",
            message="nobody claimed it within its time to live",
        )
        written, lease = self._register.rewrite(
            lease,
            state="failed",
            held=False,
            attempts=task.checked.attempts,
            error=error_fields(error),
            finished_at=stamp(now),
        )
        if written.won:
            self._applying.finish(task, lease)

    # What others hold

    def _free_leases(self) -> bool:
        """End the leases of the silent, and finish what others committed; True: there is more."""
        with self._turn:
            now = self._bucket.clock.wall()
            found = False
            waiting = [one for one in self.view.leased() if self._worth_a_look(one, now)]
            for sighting in waiting[:_LEASES]:
                found = self.settle(sighting) or found
            return found

    def _worth_a_look(self, sighting: Sighting, now: float) -> bool:
        if not self._attention_seconds:
            return True
        return self._alive.get(sighting.task_id, 0.0) <= now

    def settle(self, sighting: Sighting) -> bool:
        """See to the lease of a task; True if the task is nobody's now."""
        lease = self.view.lease_of(sighting)
        now = self._bucket.clock.wall()
        if lease is None:
            self.view.offer(sighting)
            return True
        if lease.state == "leased" or lease.too_new:
            over_at = self._beats.over_at(lease, now)
            if over_at > now or lease.too_new:
                self._note_alive(sighting.task_id, over_at)
                return False
        task = self._read(sighting, None)
        stands = standing(task, lease)
        if task is None:
            return False
        if stands.where != "completed" and self._is_removed_copy(task):
            self.view.forget(sighting.task_id)
            return False
        if lease.state == "free":
            sighting.free = lease
            self.view.offer(sighting)
            return True
        if stands.where == "leased":
            return self.end_silent(task, lease) and self._again(sighting)
        if stands.where == "pending" and lease.state == "leased":
            if now - lease.modified < VOID_SECONDS + GRANTED_SECONDS:
                return False
            return self._register.clear(lease) and self._again(sighting)
        done = self._applying.finish(task, lease)
        if stands.where != "pending":
            self.view.forget(sighting.task_id)
            return False
        return done and self._again(sighting)

    def _again(self, sighting: Sighting) -> bool:
        sighting.task = None
        if not self._bucket.store.conditional_delete:
            found = self._bucket.read_lease(sighting.task_id, sighting.place)
            if found is not None and found.state != "free":
                return False
            sighting.free = found
        self.view.offer(sighting)
        return True

    def _note_alive(self, task_id: str, until: float) -> None:
        if len(self._alive) > 10_000:
            self._alive.clear()
        self._alive[task_id] = until

    def end_silent(self, task: TaskFile, lease: LeaseFile) -> bool:
        """Take a task from a holder that went silent; True if it is tried again.

        The delivery counts, so a task that kills its workers comes to its end.
        """
        now = self._bucket.clock.wall()
        attempts = task.checked.attempts + 1
        fence = fence_of(task, lease)
        error = TaskError(
            at=now,
            attempt=attempts,
            fence=fence,
            worker_id=lease.worker_id,
            kind="crash",
            message=f"worker {lease.worker_id} went silent",
        )
        again = attempts < task.task(self._bucket.policy).max_attempts
        written, ended = self._register.rewrite(
            lease,
            state="back" if again else "failed",
            fence=fence,
            attempts=attempts,
            error=error_fields(error),
            finished_at=stamp(now),
        )
        if not written.won:
            return False
        self.ended_silent += 1
        self.failed += not again
        self._applying.finish(task, ended)
        return again

    #: How many leases of the silent were ended, and how many of those tasks failed for good.
    ended_silent = 0
    failed = 0
