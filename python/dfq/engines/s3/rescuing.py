"""Tasks that somebody else took, or began to end: whoever comes across them sees to them.

The lease of a holder that went silent is ended, and counts as a crash; what is committed is carried
out; a damaged task is set aside as soon as nobody holds it any more.
"""

from __future__ import annotations

import threading
from typing import Final

from dfq.engines.s3.applying import Applying, fence_of, standing
from dfq.engines.s3.beats import GRANTED_SECONDS, Beats
from dfq.engines.s3.bodies import Damaged, LeaseFile, TaskFile, error_fields, stamp
from dfq.engines.s3.bucket import Bucket
from dfq.engines.s3.looking import Looking
from dfq.engines.s3.quarantine import set_aside
from dfq.engines.s3.register import Register
from dfq.engines.s3.view import Sighting, View
from dfq.task import TaskError

#: One claim looks at so many leases of others.
_LEASES: Final = 64
#: A lease that means nothing is left alone for so long: its writer may be about to mend it.
VOID_SECONDS: Final = 5.0


class Rescuing:
    """What becomes of tasks whose holders are silent, or half done."""

    def __init__(
        self,
        bucket: Bucket,
        register: Register,
        applying: Applying,
        beats: Beats,
        looking: Looking,
        view: View,
        *,
        attention_seconds: float,
    ) -> None:
        self._bucket = bucket
        self._register = register
        self._applying = applying
        self._beats = beats
        self._looking = looking
        self._view = view
        self._attention_seconds = attention_seconds
        # task_id -> until when, by the store's clock, its lease can't be over
        self._alive: dict[str, float] = {}
        self._turn = threading.Lock()

    def free_leases(self) -> bool:
        """End the leases of the silent, and finish what others committed; True: there is more."""
        with self._turn:
            now = self._bucket.clock.wall()
            found = False
            waiting = [one for one in self._view.leased() if self._worth_a_look(one, now)]
            for sighting in waiting[:_LEASES]:
                found = self.settle(sighting) or found
            return found

    def _worth_a_look(self, sighting: Sighting, now: float) -> bool:
        if not self._attention_seconds:
            return True
        return self._alive.get(sighting.task_id, 0.0) <= now

    def settle(self, sighting: Sighting) -> bool:
        """See to the lease of a task; True if the task is nobody's now."""
        lease = self._view.lease_of(sighting)
        now = self._bucket.clock.wall()
        if lease is None:
            self._view.offer(sighting)
            return True
        if lease.state == "leased" or lease.too_new:
            read_after = self._bucket.clock.boot() - self._attention_seconds
            over_at = self._beats.over_at(lease, now, read_after)
            if over_at > now or lease.too_new:
                self._note_alive(sighting.task_id, over_at)
                return False
        try:
            task = self._view.read(sighting)
        except Damaged as damage:
            return self._set_aside(sighting, lease, damage)
        stands = standing(task, lease)
        if task is None:
            return False
        if stands.where != "completed" and self.is_removed_copy(task):
            self._view.forget(sighting.task_id)
            return False
        if lease.state == "free":
            sighting.free = lease
            self._view.offer(sighting)
            return True
        if stands.where == "leased":
            return self.end_silent(task, lease) and self._again(sighting)
        if stands.where == "pending" and lease.state == "leased":
            if now - lease.modified < VOID_SECONDS + GRANTED_SECONDS:
                return False
            return self._register.clear(lease) and self._again(sighting)
        done = self._applying.finish(task, lease)
        if stands.where != "pending":
            self._view.forget(sighting.task_id)
            return False
        return done and self._again(sighting)

    def _set_aside(self, sighting: Sighting, lease: LeaseFile, damage: Damaged) -> bool:
        """Set a damaged task aside whose lease is over, under one of our own."""
        self._view.forget(sighting.task_id)
        if lease.state == "completed":
            # It has its end, which stays; nobody takes it any more.
            self.quarantined += set_aside(self._bucket, sighting, str(damage), completed=True)
            return False
        self.set_aside(sighting, lease)
        return False

    def set_aside(self, sighting: Sighting, over: LeaseFile | None = None) -> None:
        """Set a damaged task aside, under a lease so that nobody else does.

        ``over``: the lease that is there, which nobody counts on any more.
        """
        ours = self._register.take(
            sighting.task_id,
            sighting.place,
            worker_id="sweep",
            seconds=self._bucket.policy.lease_seconds,
            fence=1 if over is None else over.fence + 1,
            free=over,
        )
        if ours is None:
            return
        try:
            self._view.read(sighting)
        except Damaged as damage:
            self.quarantined += set_aside(self._bucket, sighting, str(damage))
        self._register.clear(ours)

    def _again(self, sighting: Sighting) -> bool:
        sighting.task = None
        if not self._bucket.store.conditional_delete:
            found = self._bucket.read_lease(sighting.task_id, sighting.place)
            if found is not None and found.state != "free":
                return False
            sighting.free = found
        self._view.offer(sighting)
        return True

    def is_removed_copy(self, task: TaskFile) -> bool:
        """Remove a copy that came late of a task that has ended."""
        end = self._looking.end_of_copied(task)
        return end is not None and self._applying.remove_task(task, end)

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
            first_etag=task.first_etag,
        )
        if not written.won:
            return False
        self.ended_silent += 1
        self.failed += not again
        self._applying.finish(task, ended)
        return again

    #: How many leases of the silent were ended, how many of those tasks failed for good, and how
    #: many damaged ones were set aside.
    ended_silent = 0
    failed = 0
    quarantined = 0
