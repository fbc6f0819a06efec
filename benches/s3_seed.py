"""The first design of leases in a bucket, in plain boto3: what the s3 engine is measured against.

A task is ``pending/<id>/task.json``. A worker lists ``pending/``, shuffles what has no lease, and
takes a task by creating its lease.json if it is absent; then it reads the task. Done means: both
objects are deleted, at once. There is no fence, no retry and no record of what was done.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from typing import Any

from botocore.exceptions import ClientError


class SeedBucketQueue:
    """``rescan=False`` lists once, works through the list, and lists again when it is used up.

    ``rescan=True`` lists before every claim.
    """

    def __init__(self, client: Any, bucket: str, prefix: str, *, rescan: bool) -> None:
        self._client = client
        self._bucket = bucket
        self._pending = f"{prefix}/pending/"
        self._rescan = rescan
        self._candidates: list[str] = []
        self.requests: Counter[str] = Counter()
        self.races_lost = 0

    def push(self, task_id: str, payload: dict[str, Any]) -> None:
        """Store a task."""
        self._put(f"{task_id}/task.json", payload)

    def claim(self, worker_id: str) -> tuple[str, dict[str, Any]] | None:
        """Take any task, or None when a fresh list has none left."""
        fresh = self._rescan or not self._candidates
        if fresh:
            self._candidates = self._unclaimed()
        while self._candidates:
            task_id = self._candidates.pop()
            if not self._lease(task_id, worker_id):
                self.races_lost += 1
            elif (payload := self._read(task_id)) is not None:
                return task_id, payload
            else:
                # It was worked off since the list was made: there is nothing but our lease.
                self.races_lost += 1
                self._delete(f"{task_id}/lease.json")
            if not self._candidates and not fresh:
                fresh, self._candidates = True, self._unclaimed()
        return None

    def ack(self, task_id: str) -> None:
        """Delete the task, then its lease."""
        self._delete(f"{task_id}/task.json")
        self._delete(f"{task_id}/lease.json")

    def _unclaimed(self) -> list[str]:
        tasks: set[str] = set()
        leased: set[str] = set()
        after = ""
        while True:
            self.requests["list"] += 1
            page = self._client.list_objects_v2(
                Bucket=self._bucket, Prefix=self._pending, StartAfter=after
            )
            for entry in page.get("Contents", ()):
                after = entry["Key"]
                task_id, _, name = after.removeprefix(self._pending).partition("/")
                (leased if name == "lease.json" else tasks).add(task_id)
            if not page["IsTruncated"]:
                break
        free = list(tasks - leased)
        random.shuffle(free)
        return free

    def _lease(self, task_id: str, worker_id: str) -> bool:
        now = time.time()
        lease = {
            "worker_id": worker_id,
            "acquired_at": now,
            "heartbeat_at": now,
            "expires_at": now + 600,
        }
        try:
            self._put(f"{task_id}/lease.json", lease, IfNoneMatch="*")
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] in (409, 412):
                return False
            raise
        return True

    def _read(self, task_id: str) -> dict[str, Any] | None:
        self.requests["get"] += 1
        try:
            found = self._client.get_object(
                Bucket=self._bucket, Key=f"{self._pending}{task_id}/task.json"
            )
        except self._client.exceptions.NoSuchKey:
            return None
        payload: dict[str, Any] = json.loads(found["Body"].read())
        return payload

    def _put(self, name: str, value: dict[str, Any], **conditions: str) -> None:
        self.requests["put"] += 1
        self._client.put_object(
            Bucket=self._bucket,
            Key=self._pending + name,
            Body=json.dumps(value).encode(),
            **conditions,
        )

    def _delete(self, name: str) -> None:
        self.requests["delete"] += 1
        self._client.delete_object(Bucket=self._bucket, Key=self._pending + name)
