"""lease.json, the register of a task: who holds it, and how it ended.

Every change of hands and every outcome is one conditional write of this object, so an older lease
can't commit. What an outcome means for the other objects is done after it, by
:mod:`dfq.engines.s3.applying`, by whoever comes across it first.
"""

from __future__ import annotations

import os
from typing import Any

from dfq.ambient import new_id
from dfq.engines.s3.bodies import VERSION, LeaseFile, dumps, stamp
from dfq.engines.s3.bucket import Bucket
from dfq.engines.s3.keys import lease_key
from dfq.engines.s3.writes import Written


class Register:
    """Writes of lease.json."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    def take(
        self,
        task_id: str,
        place: str,
        *,
        worker_id: str,
        seconds: float,
        fence: int,
        free: LeaseFile | None = None,
        **more: Any,
    ) -> LeaseFile | None:
        """A lease on a task that nobody holds; None if somebody was faster."""
        bucket = self._bucket
        now = bucket.clock.wall()
        fields = {
            "dfq": VERSION,
            "state": "leased",
            "task_id": task_id,
            "worker_id": worker_id,
            "lease_id": new_id(bucket.clock, bucket.chance),
            "fence": fence,
            "host": os.uname().nodename,
            "pid": os.getpid(),
            "session": bucket.session,
            "seconds": seconds,
            "acquired_at": stamp(now),
            "heartbeat_at": stamp(now),
            "nonce": bucket.writes.nonce(),
            **more,
        }
        body = dumps(fields)
        if free is None:
            written = bucket.writes.create(lease_key(place), body)
        else:
            written = bucket.writes.replace(lease_key(place), body, free.etag)
        return LeaseFile(task_id, place, fields, written.etag, now) if written.won else None

    def rewrite(
        self, lease: LeaseFile, *, nonce: str = "", **changes: Any
    ) -> tuple[Written, LeaseFile]:
        """Write the register anew in place of the version that was read."""
        bucket = self._bucket
        fields = {**lease.fields, **changes, "nonce": nonce or bucket.writes.nonce()}
        fields["dfq"] = VERSION
        fields = {key: value for key, value in fields.items() if value is not None}
        body = dumps(fields)
        written = bucket.writes.replace(lease_key(lease.place), body, lease.etag)
        now = bucket.clock.wall()
        return written, LeaseFile(lease.task_id, lease.place, fields, written.etag, now)

    def renew(self, lease: LeaseFile, fence: int) -> tuple[Written, LeaseFile]:
        """Make a new lease of one that was just taken."""
        bucket = self._bucket
        return self.rewrite(lease, lease_id=new_id(bucket.clock, bucket.chance), fence=fence)

    def clear(self, lease: LeaseFile) -> bool:
        """Let the register go, if it is still this version; the task is nobody's then.

        A store that can't delete on a condition keeps it, marked as free: the next lease is
        written in its place.
        """
        if self._bucket.store.conditional_delete:
            return self._bucket.writes.delete(lease_key(lease.place), lease.etag)
        if lease.state == "free":
            return True
        freed = LeaseFile(
            lease.task_id, lease.place, {"fence": lease.fence}, lease.etag, lease.modified
        )
        written, _ = self.rewrite(freed, state="free")
        return written.won
