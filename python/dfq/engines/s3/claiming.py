"""Taking tasks: the lease first, then a look at what was taken.

Most tasks that wait are ready and wanted, so a claim writes the lease and only then reads the
task: one write and one read. A task that turns out to be not ready, or not wanted, is let go and
remembered; then, for a while, tasks are read before they are taken.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final, Literal

from dfq.engines.s3.applying import Applying
from dfq.engines.s3.beats import Beats, Held, taken
from dfq.engines.s3.bodies import Damaged, LeaseFile, TaskFile, error_fields, stamp
from dfq.engines.s3.bucket import Bucket
from dfq.engines.s3.dependencies import Dependencies
from dfq.engines.s3.keys import PAUSED
from dfq.engines.s3.quarantine import set_aside
from dfq.engines.s3.register import Register
from dfq.engines.s3.rescuing import Rescuing
from dfq.engines.s3.view import Sighting, View
from dfq.errors import DfqError
from dfq.lease import Lease
from dfq.record import Filter
from dfq.task import TaskError

#: After a task that was taken in vain, so many are read before they are taken.
_WARY: Final = 20
#: One claim looks at so many pages of a large queue.
_PAGES: Final = 20

_Verdict = Literal["ready", "later", "expired"]


class Claiming:
    """The claims of one handle."""

    def __init__(
        self,
        bucket: Bucket,
        register: Register,
        applying: Applying,
        beats: Beats,
        view: View,
        rescuing: Rescuing,
        dependencies: Dependencies,
        *,
        attention_seconds: float,
    ) -> None:
        self._bucket = bucket
        self._register = register
        self._applying = applying
        self._beats = beats
        self._rescuing = rescuing
        self._dependencies = dependencies
        self._attention_seconds = attention_seconds
        self.view = view
        #: The last claim found something: there may be more.
        self.is_busy = False
        #: Somebody was faster since the last look: what was seen is out of date.
        self._beaten = False
        self._wary = 0
        self._pause_seen_at: float | None = None

    def claim(self, limit: int, worker_id: str, seconds: float, filter: Filter) -> list[Lease]:
        """Up to ``limit`` tasks. What was taken before the store failed is not lost."""
        leases: list[Lease] = []
        try:
            self._claim(leases, limit, worker_id, seconds, filter)
        except DfqError:
            if not leases:
                raise
        except BaseException as error:
            # Nobody is handed these leases, so no sign of life may keep them.
            for held in self._forget(leases):
                if isinstance(error, Exception):
                    with suppress(DfqError):
                        self._register.clear(held.lease)
            raise
        self.is_busy = bool(leases)
        return leases

    def _forget(self, leases: list[Lease]) -> list[Held]:
        held = [self._beats.get(lease.lease_id) for lease in leases]
        for lease in leases:
            self._beats.forget(lease.lease_id)
        return [one for one in held if one is not None]

    def _claim(
        self, leases: list[Lease], limit: int, worker_id: str, seconds: float, filter: Filter
    ) -> None:
        def attempt(sighting: Sighting) -> DfqError | None:
            try:
                lease = self._attempt(sighting, worker_id, seconds, filter)
            except DfqError as error:
                # What the others under way take is not lost by that.
                return error
            if lease is not None:
                leases.append(lease)
            return None

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
            if self._rescuing.free_leases() or (looked and self.view.look_on()):
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
        attempt: Callable[[Sighting], DfqError | None],
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
                errors = [one for one in self._bucket.map(attempt, batch) if one is not None]
                if errors:
                    raise errors[0]
        finally:
            self.view.put_back(unwanted)

    def _known_later(self, sighting: Sighting, filter: Filter) -> bool:
        """Whether it is known already, without a request, that this is not for us now."""
        if self.view.is_left_alone(sighting):
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
        return self._dependencies.surely_wait(checked.depends_on)

    # One task

    def _attempt(
        self, sighting: Sighting, worker_id: str, seconds: float, filter: Filter
    ) -> Lease | None:
        known = self.view.remembered(sighting)
        if known is None and self._wary:
            self._wary -= 1
            try:
                known = self.view.read(sighting)
            except Damaged:
                # Whoever holds it sets it aside.
                known = None
            else:
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
        except Exception:
            # What we hold but can't read is nobody's. If this fails too, its time runs out.
            with suppress(DfqError):
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
        task = self._read(sighting)
        if task is None:
            self.view.leave_alone(sighting)
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
        if self._rescuing.is_removed_copy(task):
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

    def _read(self, sighting: Sighting) -> TaskFile | None:
        """A task that we hold; a damaged one is set aside."""
        try:
            return self.view.read(sighting)
        except Damaged as damage:
            set_aside(self._bucket, sighting, str(damage))
            return None

    def _judge(self, task: TaskFile, filter: Filter) -> _Verdict:
        now = self._bucket.clock.wall()
        checked = task.checked
        if checked.expires_at is not None and checked.expires_at <= now:
            return "expired"
        if not filter.matches(checked):
            return "later"
        if checked.not_before is not None and checked.not_before > now:
            return "later"
        return "ready" if self._dependencies.are_met(checked.depends_on) else "later"

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
            first_etag=task.first_etag,
        )
        if written.won:
            self._applying.finish(task, lease)
