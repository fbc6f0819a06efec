"""What a committed outcome means, and making it so.

An outcome stands in lease.json before anything else is touched, so whoever reads it there, and
be it long after a crash, comes to the same end: every step is a conditional write or a delete,
and doing it twice does nothing.

A task is in doubt for nobody: :func:`standing` tells from the two objects alone how it stands,
whether or not the outcome has been carried out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from dfq.engines.s3.bodies import NORMAL, LeaseFile, TaskFile, dumps, stamp
from dfq.engines.s3.bucket import Bucket
from dfq.engines.s3.keys import failed_key, lane_key, task_key
from dfq.engines.s3.register import Register
from dfq.store import Lost

#: A task.json that reached the store so long after it was sent off came late: it may be a copy of
#: one that was worked off meanwhile, and is looked up before anything is done with it.
LATE_SECONDS: Final = 60.0
#: The register keeps the end of a task for so long. Whoever creates a task.json looks at the
#: register first and at the finished tasks then, and dates the task before that look: so a copy
#: meets the register, or it came late.
KEPT_SECONDS: Final = 2 * LATE_SECONDS


@dataclass(frozen=True)
class Standing:
    """How a task stands, by what its two objects say together."""

    where: Literal["nowhere", "pending", "leased", "failed", "completed"]
    task: TaskFile | None = None
    lease: LeaseFile | None = None
    #: The lease that is there means nothing any more, or has been carried out in part.
    leftover: LeaseFile | None = None


def standing(task: TaskFile | None, lease: LeaseFile | None) -> Standing:
    """How a task stands."""
    if lease is not None and lease.state == "completed" and not is_void(task, lease):
        return Standing("completed", task, lease)
    if task is None:
        # The outcome "failed" deletes task.json only once the record is there.
        return Standing("nowhere", leftover=lease)
    if lease is None or lease.state == "free":
        return Standing("pending", task)
    if lease.too_new:
        return Standing("leased", task, lease)
    if is_void(task, lease):
        return Standing("pending", task, leftover=lease)
    if lease.state == "leased":
        return Standing("leased", task, lease)
    where: Literal["failed", "pending"] = "failed" if lease.state == "failed" else "pending"
    return Standing(where, ended(task, lease), lease, leftover=lease)


def is_void(task: TaskFile | None, lease: LeaseFile) -> bool:
    """An older lease: its end is in task.json already. A damaged one tells no fence.

    A copy of its creation that comes late may bring it back, and its holder may write it then.
    """
    if task is None or lease.damage or not lease.version:
        return False
    return lease.fence <= task.fence


def came_late(task: TaskFile) -> bool:
    """Whether it took so long to reach the store that its task may have ended meanwhile."""
    written = task.written_at
    return written is not None and task.modified - written >= LATE_SECONDS


def fence_of(task: TaskFile, lease: LeaseFile) -> int:
    """The fence a lease counts under. One that a script or an older version wrote has none."""
    return max(lease.fence, task.fence + 1)


def ended(task: TaskFile, lease: LeaseFile) -> TaskFile:
    """The task as an outcome leaves it."""
    fields = {
        **task.fields,
        "fence": fence_of(task, lease),
        "attempts": lease.fields.get("attempts", task.checked.attempts),
        "errors": task.with_error(lease.error),
        "not_before": lease.fields.get("not_before"),
        "saved": lease.fields.get("saved", task.saved),
        # The version that was pushed: a copy of it may still be on its way.
        "first_etag": task.first_etag,
    }
    return replace(task, fields={k: v for k, v in fields.items() if v is not None})


def failed_fields(task: TaskFile, lease: LeaseFile) -> dict[str, Any]:
    """The record of a failed task, from the task as its outcome leaves it."""
    return {
        "dfq": 1,
        "task_id": task.task_id,
        "fence": task.fence,
        "finished_at": lease.fields.get("finished_at"),
        "holder": lease.fields if lease.fields.get("held", True) else None,
        "task": {k: v for k, v in task.fields.items() if k != "saved"},
        # The same for everybody who writes this record: it is the outcome's own.
        "nonce": lease.nonce,
    }


class Applying:
    """Carries out what is committed."""

    def __init__(self, bucket: Bucket, register: Register) -> None:
        self._bucket = bucket
        self._register = register

    def finish(self, task: TaskFile | None, lease: LeaseFile) -> bool:
        """Carry out the outcome in ``lease``; False if somebody changed something meanwhile."""
        if lease.state == "free":
            return True
        if is_void(task, lease):
            return self._register.clear(lease)
        if lease.state == "completed":
            return task is None or self.remove_task(task, "completed")
        if lease.state == "failed":
            # The register stays for a while, as it does after a completion: it is what a copy of
            # task.json that comes late must meet.
            return task is None or self._fail(task, lease)
        if task is not None and (lease.state == "leased" or not self._back(task, lease)):
            return False
        return self._register.clear(lease)

    def remove_task(self, task: TaskFile, end: Literal["completed", "failed"]) -> bool:
        """Delete task.json and the mark of its priority. A failed task may be requeued."""
        remove = self._bucket.erase if end == "completed" else self._bucket.vacate
        if not remove(task_key(task.place), task.etag):
            return False
        priority = task.checked.priority
        if priority != NORMAL:
            self._bucket.store.delete(lane_key(priority, task.task_id))
        return True

    def _back(self, task: TaskFile, lease: LeaseFile) -> bool:
        bucket = self._bucket
        after = ended(task, lease)
        now = bucket.clock.wall()
        body = dumps({**after.fields, "nonce": bucket.writes.nonce(), "written_at": stamp(now)})
        return bucket.writes.replace(task_key(task.place), body, task.etag).won

    def _fail(self, task: TaskFile, lease: LeaseFile) -> bool:
        bucket = self._bucket
        fields = failed_fields(ended(task, lease), lease)
        key, body = failed_key(task.task_id), dumps(fields)
        written = bucket.writes.create(key, body)
        if not written.won and not self._replace_older(key, body, fields["fence"]):
            return False
        return self.remove_task(task, "failed")

    def _replace_older(self, key: str, body: bytes, fence: int) -> bool:
        """A record of this task is there: our own, or one that a requeue left behind."""
        import orjson

        found = self._bucket.read_odd(key)
        if found is None:
            return False
        if found.body == body:
            return True
        try:
            # The mark of an empty key has no fence.
            older = int(orjson.loads(found.body)["fence"]) < fence
        except (ValueError, TypeError, KeyError, OverflowError):
            older = True
        if not older:
            return True
        try:
            self._bucket.store.replace(key, body, found.etag)
        except Lost:
            return False
        return True
