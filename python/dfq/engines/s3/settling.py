"""Ending a lease: the outcome is committed in lease.json, then carried out."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from dfq.engines.s3.applying import Applying, is_void
from dfq.engines.s3.beats import Beats, Held, rewritten, taken
from dfq.engines.s3.bodies import Damaged, LeaseFile, LeftAlone, TaskFile, error_fields, stamp
from dfq.engines.s3.bucket import Bucket
from dfq.engines.s3.finished import FOLD_RECORDS, Finished, Unfolded
from dfq.engines.s3.keys import home
from dfq.engines.s3.looking import Looking
from dfq.engines.s3.register import Register
from dfq.errors import (
    AlreadyCompleted,
    DfqError,
    LeaseLost,
    LeaseNotHeld,
    LeaseTaken,
    QueueBusy,
    QueueUnavailable,
    StoreUnsure,
)
from dfq.lease import Lease
from dfq.record import Outcome
from dfq.task import ErrorKind, TaskError

#: Somebody may write lease.json between our reading and our writing, but not for ever.
_TRIES: Final = 8
#: Locks, for leases that are written anew by several threads of their holder.
_TURNS: Final = 64


class Settling:
    """The verbs that take a lease."""

    def __init__(
        self,
        bucket: Bucket,
        register: Register,
        applying: Applying,
        beats: Beats,
        looking: Looking,
        finished: Finished,
    ) -> None:
        self._bucket = bucket
        self._register = register
        self._applying = applying
        self._beats = beats
        self._looking = looking
        self._finished = finished
        self._unfolded = Unfolded()
        self._turns = [threading.Lock() for _ in range(_TURNS)]
        # lease_id -> the nonces of commits that may have been done although nobody said so
        self._doubtful: dict[str, set[str]] = {}

    # The verbs

    def ack(self, lease: Lease, result: Any, size: int) -> None:
        """Complete the task."""
        held = self._held(lease)
        now = self._bucket.clock.wall()
        done, ended_lease = self._commit(
            held,
            state="completed",
            attempts=held.attempt,
            finished_at=stamp(now),
            result=result,
            saved=None,
            task=ended_task_fields(held.task),
            task_etag=held.task.etag,
            first_etag=held.task.fields.get("first_etag"),
        )
        if self._carry_out(done.task, ended_lease) is False:
            self._refuse_if_void(ended_lease)
        self._note_completed(ended_lease, now, size)

    def nack(self, lease: Lease, message: str, kind: ErrorKind, delay_seconds: float) -> Outcome:
        """Back after a delay, or to failed with the last attempt."""
        held = self._held(lease)
        now = self._bucket.clock.wall()
        again = held.attempt < held.task.task(self._bucket.policy).max_attempts
        held, committed = self._commit(
            held,
            state="back" if again else "failed",
            attempts=held.attempt,
            error=error_fields(self._error(held, kind, message)),
            not_before=stamp(now + delay_seconds) if again and delay_seconds else None,
            finished_at=stamp(now),
            first_etag=held.task.first_etag,
        )
        self._carry_out(held.task, committed)
        return Outcome.RETRY if again else Outcome.FAILED

    def release(self, lease: Lease, delay_seconds: float) -> None:
        """Back after a delay; the attempt does not count."""
        held = self._held(lease)
        now = self._bucket.clock.wall()
        held, committed = self._commit(
            held,
            state="back",
            attempts=held.attempt - 1,
            not_before=stamp(now + delay_seconds) if delay_seconds else None,
        )
        self._carry_out(held.task, committed)

    def bury(self, lease: Lease, reason: str) -> None:
        """To failed, by its holder."""
        held = self._held(lease)
        now = self._bucket.clock.wall()
        held, committed = self._commit(
            held,
            state="failed",
            attempts=held.attempt,
            error=error_fields(self._error(held, "buried", reason)),
            finished_at=stamp(now),
            first_etag=held.task.first_etag,
        )
        self._carry_out(held.task, committed)

    def save_state(self, lease: Lease, state: Any) -> None:
        """Keep a value in the lease; it moves to the task when the lease ends."""
        saved = {"value": state}
        with self._turn(lease):
            held = self._held(lease)
            if self._beats.get(lease.lease_id) is None:
                # How long the holder's signs of life count is not ours to say.
                self._commit(held, state="leased", saved=saved)
            else:
                # The write is a sign of life, and counts for as long as the last one did.
                self._sign(held, held.seconds, saved=saved)

    def heartbeat(self, leases: Sequence[Lease], seconds: float) -> list[Lease | DfqError]:
        """Renew leases with one write for all; each is read once, to see whether it is lost."""
        ours = [held for lease in leases if (held := self._beats.get(lease.lease_id)) is not None]
        late = {held.lease.lease_id for held in self._beats.prolong(ours, seconds)}
        in_time = {held.lease.lease_id for held in ours} - late
        return list(
            self._bucket.map(
                lambda lease: self._renew(lease, seconds, lease.lease_id in in_time), leases
            )
        )

    def _renew(self, lease: Lease, seconds: float, in_time: bool) -> Lease | DfqError:
        """What a sign of life did for one lease."""
        try:
            held = self._look_after(lease) if in_time else self._rewrite(lease, seconds)
        except (LeaseLost, QueueUnavailable, QueueBusy) as error:
            if isinstance(error, LeaseLost):
                self._beats.forget(lease.lease_id)
            return error
        return replace(
            lease, heartbeat_at=held.signed_wall, expires_at=held.signed_wall + held.seconds
        )

    def _look_after(self, lease: Lease) -> Held:
        """The beat was in time; whether somebody took the task away only lease.json says."""
        held = self._beats.get(lease.lease_id)
        place = home(lease.task_id) if held is None else held.lease.place
        found = self._bucket.read_lease(lease.task_id, place)
        if held is None or found is None or not _is(found, lease):
            raise self._why_lost(lease, found)
        return held

    def _rewrite(self, lease: Lease, seconds: float) -> Held:
        """The beat came too late, or another process took the lease: lease.json itself decides."""
        with self._turn(lease):
            held = self._held(lease)
            if self._beats.get(lease.lease_id) is not None:
                now = self._bucket.clock.wall()
                return self._sign(held, seconds, heartbeat_at=stamp(now))
            boot, wall = self._bucket.clock.boot(), self._bucket.clock.wall()
            # What its holder said of its own signs of life stays there, beside this.
            held, written = self._commit(held, state="leased", aside=seconds)
            return rewritten(held, written, seconds, boot, wall)

    def _sign(self, held: Held, seconds: float, **changes: Any) -> Held:
        """Give a sign of life for a lease of ours in its own lease.json."""
        boot, wall = self._bucket.clock.boot(), self._bucket.clock.wall()
        self._beats.expect(held.lease.lease_id, seconds, boot, wall)
        held, written = self._commit(held, state="leased", aside=None, seconds=seconds, **changes)
        renewed = rewritten(held, written, seconds, boot, wall)
        self._beats.hold_on(renewed)
        return renewed

    def _turn(self, lease: Lease) -> threading.Lock:
        """Of those who write a lease of ours anew, one after the other knows how long it lives."""
        return self._turns[zlib.crc32(lease.lease_id.encode()) % len(self._turns)]

    # Committing

    def _held(self, lease: Lease) -> Held:
        """What is known of a lease; one that another process took is read."""
        held = self._beats.get(lease.lease_id)
        if held is not None:
            return held
        place = home(lease.task_id)
        found = self._bucket.read_lease(lease.task_id, place)
        if found is None or not _is(found, lease):
            raise self._why_lost(lease, found)
        stands = self._looking.standing_of(lease.task_id, place)
        if stands.where != "leased" or stands.task is None or stands.lease is None:
            raise self._why_lost(lease, stands.lease)
        if not _is(stands.lease, lease):
            raise self._why_lost(lease, stands.lease)
        clock = self._bucket.clock
        # Nothing is known of the signs of life that keep it: only its own object counts.
        return taken(stands.lease, stands.task, 0.0, clock.boot(), clock.wall())

    def _commit(self, held: Held, **changes: Any) -> tuple[Held, LeaseFile]:
        """Write an outcome (or a sign of life) into lease.json; LeaseLost if it is not ours."""
        lease_id = held.lease.lease_id
        if not self._is_certain(held):
            self._refuse_if_void(held.lease)
        for _ in range(_TRIES):
            nonce = self._bucket.writes.nonce()
            try:
                written, committed = self._register.rewrite(held.lease, nonce=nonce, **changes)
            except StoreUnsure:
                # It may have been done, or be done later. The next try knows it as ours.
                self._doubtful.setdefault(lease_id, set()).add(nonce)
                raise
            if not written.won:
                found = self._bucket.read_lease(held.lease.task_id, held.lease.place)
                if found is not None and found.lease_id == lease_id and found.state == "leased":
                    held = replace(held, lease=found)
                    continue
                doubtful = self._doubtful.get(lease_id, set())
                if written.end == "vanished":
                    doubtful = doubtful | {nonce}
                if not self._was_done(held, committed, found, doubtful):
                    raise self._why_lost(held.lease, found)
                if found is not None and found.lease_id == lease_id:
                    # The earlier try counts, and what it said.
                    committed = found
            if committed.state != "leased":
                self._beats.forget(lease_id)
                self._doubtful.pop(lease_id, None)
            elif not self._is_certain(held):
                self._refuse_if_void(committed, is_there=True)
            return held, committed
        raise QueueBusy(
            f"the lease on task {held.lease.task_id!r} is written again and again by others; "
            "try again"
        )

    def _was_done(
        self, held: Held, wanted: LeaseFile, found: LeaseFile | None, doubtful: set[str]
    ) -> bool:
        """Whether an earlier try of this verb was done, although nobody said so."""
        if not doubtful:
            return False
        if found is not None and found.lease_id == wanted.lease_id:
            return found.nonce in doubtful and found.state == wanted.state
        # Somebody carried it out meanwhile: then it shows in the task.
        record = self._looking.get(wanted.task_id)
        if record is None:
            return False
        if wanted.state == "completed":
            lease = record.lease
            return (
                record.state == "completed"
                and lease is not None
                and (lease.lease_id == wanted.lease_id)
            )
        errors = [error for error in record.task.errors if error.fence == held.lease.fence]
        return wanted.error is not None and wanted.error in errors

    def _carry_out(self, task: TaskFile, lease: LeaseFile) -> bool | None:
        """The outcome is safe: if the store fails now, anybody makes it so later.

        False: somebody changed the task meanwhile.
        """
        try:
            return self._applying.finish(task, lease)
        except (QueueUnavailable, QueueBusy):
            return None

    def _refuse_if_void(self, lease: LeaseFile, *, is_there: bool = False) -> None:
        """Raise LeaseLost if a lease had ended, and was brought back by a late copy of its claim.

        What was written under it is taken back. Nobody gave anything on it: task.json is newer, or
        gone although its lease is there and has no end.
        """
        try:
            task = self._bucket.read_task(lease.task_id, lease.place)
        except (Damaged, LeftAlone):
            # Who overwrote it knew of no lease; what there is now tells no fence.
            return
        if is_void(task, lease) or (task is None and is_there):
            self._register.clear(lease)
            # Somebody may hold it by now, under a newer lease.
            raise self._why_lost(lease, self._bucket.read_lease(lease.task_id, lease.place))

    def _is_certain(self, held: Held) -> bool:
        """Whether nobody can have ended a lease for silence."""
        return self._bucket.clock.boot() < held.certain_until

    def _error(self, held: Held, kind: ErrorKind, message: str) -> TaskError:
        return TaskError(
            at=self._bucket.clock.wall(),
            attempt=held.attempt,
            fence=held.lease.fence,
            worker_id=held.lease.worker_id,
            kind=kind,
            message=message,
        )

    def _why_lost(self, lease: Lease | LeaseFile, found: LeaseFile | None) -> LeaseLost:
        self._beats.forget(lease.lease_id)
        where = f"task {lease.task_id!r}"
        if found is not None and found.state == "completed":
            return AlreadyCompleted(
                f"{where} is completed already, by {found.worker_id} under fence {found.fence}"
            )
        if found is not None and found.state == "leased" and found.lease_id != lease.lease_id:
            return LeaseTaken(
                f"{where} is held by {found.worker_id} under fence {found.fence}, "
                f"newer than {lease.fence}; stop this work"
            )
        if found is None:
            record = self._looking.get(lease.task_id)
            if record is None:
                return LeaseNotHeld(f"{where} was deleted from the queue; this lease is void")
            if record.state == "completed" and record.lease is not None:
                return AlreadyCompleted(
                    f"{where} is completed already, by {record.lease.worker_id} "
                    f"under fence {record.lease.fence}"
                )
        return LeaseNotHeld(f"{where} is held by nobody: the lease with fence {lease.fence} ended")

    # Folding

    def _note_completed(self, lease: LeaseFile, now: float, size: int) -> None:
        self._unfolded.add(lease, now, size)
        if self._unfolded.due(now) >= FOLD_RECORDS:
            self.fold()

    def fold(self) -> int:
        """Fold our own records that are old enough; how many there were."""
        due = self._unfolded.take(self._bucket.clock.wall())
        try:
            return self._finished.fold(due) if due else 0
        except (QueueUnavailable, QueueBusy):
            # They stand in lease.json as before; a sweep finds them there.
            return 0


def ended_task_fields(task: TaskFile) -> dict[str, Any]:
    """The task as it goes into the record of its completion."""
    return {key: value for key, value in task.fields.items() if key != "saved"}


def _is(found: LeaseFile, lease: Lease) -> bool:
    return found.state == "leased" and found.lease_id == lease.lease_id
