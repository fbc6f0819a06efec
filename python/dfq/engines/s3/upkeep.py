"""Looking after the queue: purging, and moving tasks by id."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from dfq.engines.base import not_requeued
from dfq.engines.s3.applying import Applying, Standing
from dfq.engines.s3.bodies import NORMAL, LeaseFile, TaskFile, error_fields, seconds_of, stamp
from dfq.engines.s3.bucket import Bucket
from dfq.engines.s3.finished import Finished
from dfq.engines.s3.keys import failed_key, home, lane_key, task_key
from dfq.engines.s3.looking import Looking
from dfq.engines.s3.register import Register
from dfq.engines.s3.view import Sighting
from dfq.errors import QueueBusy, TaskNotFound, WrongState
from dfq.record import State
from dfq.task import ErrorKind, TaskError

_TRIES: Final = 8


class Upkeep:
    """What keeps a queue in order."""

    def __init__(
        self,
        bucket: Bucket,
        register: Register,
        applying: Applying,
        looking: Looking,
        finished: Finished,
    ) -> None:
        self._bucket = bucket
        self._register = register
        self._applying = applying
        self._looking = looking
        self._finished = finished

    # Moving tasks by id

    def fail(self, task_id: str, reason: str, kind: ErrorKind, *, held: bool) -> None:
        """To failed, by id. A leased task only if ``held``."""
        for _ in range(_TRIES):
            stands = self._looking.standing_of(task_id)
            if stands.where == "leased" and not held:
                assert stands.lease is not None
                raise WrongState(
                    f"task {task_id!r} is held by {stands.lease.worker_id}; "
                    "cancel it, or wait until it is given back"
                )
            if stands.where not in ("pending", "leased"):
                raise self._not_pending(task_id, stands)
            if stands.leftover is not None:
                # Committed, but not carried out yet: first things first.
                task = self._bucket.read_task(task_id, home(task_id))
                self._applying.finish(task, stands.leftover)
                continue
            if self.end(stands, reason, kind):
                return
        raise QueueBusy(f"task {task_id!r} changes hands all the time; try again")

    def _not_pending(self, task_id: str, stands: Standing) -> Exception:
        if stands.where != "nowhere":
            return WrongState(f"task {task_id!r} is {stands.where} already; nothing was changed")
        record = self._looking.get(task_id)
        if record is None:
            return TaskNotFound(
                f"no task {task_id!r} in {self._bucket.store.url}; `dfq ls` lists those there are"
            )
        return WrongState(f"task {task_id!r} is {record.state} already; nothing was changed")

    def end(self, stands: Standing, reason: str, kind: ErrorKind) -> bool:
        """End a pending task, whoever holds it; False if somebody was faster."""
        task, lease = stands.task, stands.lease
        assert task is not None
        end = self._looking.end_of_copied(task)
        if end is not None:
            self._applying.remove_task(task, end)
            return False
        now = self._bucket.clock.wall()
        held = stands.where == "leased" and lease is not None
        attempts = task.checked.attempts + held
        error = TaskError(
            at=now,
            attempt=attempts,
            fence=lease.fence if held and lease is not None else task.fence,
            worker_id=lease.worker_id if held and lease is not None else None,
            kind=kind,
            message=reason,
        )
        outcome: dict[str, Any] = {
            "state": "failed",
            "attempts": attempts,
            "error": error_fields(error),
            "finished_at": stamp(now),
            "first_etag": task.first_etag,
        }
        committed: LeaseFile | None
        if held and lease is not None:
            fence = max(lease.fence, task.fence + 1)
            written, committed = self._register.rewrite(lease, fence=fence, **outcome)
            if not written.won:
                return False
            self._applying.finish(task, committed)
            return True
        return self._take_to_fail(task, outcome)

    def _take_to_fail(self, task: TaskFile, outcome: dict[str, Any]) -> bool:
        """Nobody holds it: a lease that is its end already."""
        committed = self._register.take(
            task.task_id,
            task.place,
            worker_id="nobody",
            seconds=self._bucket.policy.lease_seconds,
            fence=task.fence + 1,
            free=self._free(task),
            held=False,
            **outcome,
        )
        if committed is None:
            return False
        there = self._bucket.read_task(task.task_id, task.place)
        if there is None or not _is_as_old(there, task):
            # It changed while we looked: what we wrote is about an older task.
            self._register.clear(committed)
            return False
        self._applying.finish(there, committed)
        return True

    def _free(self, task: TaskFile) -> LeaseFile | None:
        if self._bucket.store.conditional_delete:
            return None
        lease = self._bucket.read_lease(task.task_id, task.place)
        return lease if lease is not None and lease.state == "free" else None

    def requeue(self, task_id: str) -> None:
        """Give a failed task its attempts back; its history and fence stay."""
        written_at = self._bucket.clock.wall()
        stands = self._looking.standing_of(task_id)
        if stands.where == "failed" and stands.leftover is not None:
            task = self._bucket.read_task(task_id, home(task_id))
            self._applying.finish(task, stands.leftover)
            stands = self._looking.standing_of(task_id)
        failed = self._looking.failed(task_id)
        if stands.where not in ("nowhere", "failed") or failed is None:
            record = self._looking.get(task_id)
            if record is None:
                raise TaskNotFound(
                    f"no task {task_id!r} in {self._bucket.store.url}; "
                    "`dfq ls` lists those there are"
                )
            if failed is not None and record.state in ("ready", "delayed", "blocked"):
                # A requeue was cut short: the task is pending, the record is what it left.
                self._bucket.vacate(failed_key(task_id), failed.etag)
            raise WrongState(not_requeued(task_id, record.state))
        if self._finished.find(task_id) is not None:
            # The record came late: the task was requeued and completed since.
            self._bucket.erase(failed_key(task_id), failed.etag)
            raise WrongState(not_requeued(task_id, "completed"))
        now = self._bucket.clock.wall()
        expires_at = failed.task.checked.expires_at
        lives = expires_at is None or expires_at > now
        body = failed.task.body(
            self._bucket.writes.nonce(),
            written_at,
            fence=max(failed.fence, failed.task.fence),
            requeued=True,
            attempts=None,
            not_before=None,
            # Its time was up; asked for again, it gets to run.
            expires_at=failed.task.fields.get("expires_at") if lives else None,
        )
        priority = failed.task.checked.priority
        if priority != NORMAL:
            self._bucket.store.put(lane_key(priority, task_id), b"")
        if not self._bucket.occupy(task_key(home(task_id)), body).won:
            raise WrongState(not_requeued(task_id, "pending"))
        self._bucket.vacate(failed_key(task_id), failed.etag)

    # Purging

    def purge(self, state: State | None, *, older_than_seconds: float | None) -> int:
        """Delete tasks for good; leased ones only by ``state="leased"``."""
        latest = self._bucket.clock.wall() - (older_than_seconds or 0.0)

        def is_old(moment: float) -> bool:
            return older_than_seconds is None or moment <= latest

        removed = 0
        census = self._looking.census(exactly=True)
        failed = self._looking.failed_ids() if state in (None, "failed") else {}
        for task_id, stands in census.standings.items():
            if stands.where == "nowhere":
                self._forget_failure(stands, failed, is_old)
                continue
            failed.pop(task_id, None)
            if stands.where == "failed":
                wanted = state in (None, "failed")
            elif state is None:
                wanted = stands.where != "leased"
            else:
                wanted = self._looking.record(stands).state == state
            if wanted and is_old(_since(stands)):
                removed += self._delete(census.sightings[task_id])
        for task_id in failed:
            found = self._looking.readable_failed(task_id)
            if found is not None and is_old(found.finished_at):
                removed += self._bucket.vacate(failed_key(task_id), found.etag)
        if state in (None, "completed"):
            removed += self._finished.remove(
                lambda one: is_old(seconds_of(one["finished_at"])),
                math.inf if older_than_seconds is None else latest,
            )
        return removed

    def _forget_failure(
        self, stands: Standing, failed: Mapping[str, str], is_old: Callable[[float], bool]
    ) -> None:
        """Let go of the register of a failed task whose record goes as well."""
        lease = stands.leftover
        if lease is None or lease.state != "failed" or lease.task_id not in failed:
            return
        if is_old(lease.ended_at):
            self._register.clear(lease)

    def _delete(self, sighting: Sighting) -> bool:
        """Delete a task under ``pending/``, the task first: a lease without one is litter."""
        task, lease = sighting.task, sighting.lease
        if task is not None and not self._bucket.vacate(task_key(sighting.place), task.etag):
            return False
        if lease is None:
            return True
        return self._register.clear(
            LeaseFile(sighting.task_id, sighting.place, {}, lease.etag, lease.modified)
        )


def _is_as_old(there: TaskFile, task: TaskFile) -> bool:
    """Whether no lease ended since a task was read: then an end of it is still its end.

    What was committed before that may have been carried out since, which makes another version
    with the same fence. A task that was pushed anew has none.
    """
    return there.etag == task.etag or 0 < there.fence == task.fence


def _since(stands: Standing) -> float:
    lease = stands.lease
    if stands.where in ("completed", "failed") and lease is not None:
        return lease.ended_at
    assert stands.task is not None
    return stands.task.checked.created_at
