"""The names of a queue's objects: where everything lies in a bucket.

``lanes/``, ``paused`` and ``pending/`` stand together in the order of keys, so that one listing
from ``lanes/`` on shows all that an idle worker needs to know.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final, NamedTuple

from dfq.task import MAX_ID_LENGTH

#: The key a look at the queue's front starts after. It is no folder's name: SeaweedFS leaves out
#: the folder that a listing is to start after.
FRONT: Final = "failed~"
#: The same for all that a sweep looks at.
SWEPT: Final = "completed~"
PENDING: Final = "pending/"
LANES: Final = "lanes/"
FAILED: Final = "failed/"
COMPLETED: Final = "completed/"
WORKERS: Final = "workers/"
QUARANTINE: Final = "quarantine/"
PAUSED: Final = "paused"
POLICY: Final = "queue.json"

#: Lanes sort by priority, the highest first; the numbers of priorities end here.
_HIGHEST: Final = 32_767

# The shard may have any name, or be left out.
_PENDING_KEY = re.compile(
    rf"(pending/(?:[^/]+/)?([A-Za-z0-9_-][A-Za-z0-9._-]{{0,{MAX_ID_LENGTH - 1}}}))"
    r"/(task|lease)\.json",
    re.ASCII,
)
_FAILED_KEY = re.compile(r"failed/[0-9a-f]{2}/([A-Za-z0-9_-][A-Za-z0-9._-]*)\.json", re.ASCII)
_LANE_KEY = re.compile(r"lanes/(\d{5})/([A-Za-z0-9_-][A-Za-z0-9._-]*)", re.ASCII)


class PendingKey(NamedTuple):
    """What the key of an object under ``pending/`` says."""

    place: str
    task_id: str
    is_lease: bool


def shard_of(task_id: str) -> str:
    """The shard of a task: two hex digits."""
    return hashlib.sha256(task_id.encode()).hexdigest()[:2]


def home(task_id: str) -> str:
    """The place of a task: what its keys begin with."""
    return f"pending/{shard_of(task_id)}/{task_id}"


def task_key(place: str) -> str:
    """The task itself."""
    return f"{place}/task.json"


def lease_key(place: str) -> str:
    """Who holds it, and what became of it."""
    return f"{place}/lease.json"


def failed_key(task_id: str) -> str:
    """The task, once it failed for good."""
    return f"failed/{shard_of(task_id)}/{task_id}.json"


def failed_id(key: str) -> str:
    """The task whose failure is recorded there; empty if it is none of ours."""
    match = _FAILED_KEY.fullmatch(key)
    return match[1] if match is not None and failed_key(match[1]) == key else ""


def beat_key(session: str) -> str:
    """The sign of life of one process."""
    return f"workers/{session}.json"


def lane_key(priority: int, task_id: str) -> str:
    """The mark of a task whose priority is not the normal one."""
    return f"lanes/{_HIGHEST - priority:05d}/{task_id}"


def read_pending(key: str) -> PendingKey | None:
    """What a key under ``pending/`` stands for; None if it is none of ours."""
    match = _PENDING_KEY.fullmatch(key)
    return None if match is None else PendingKey(match[1], match[2], match[3] == "lease")


def read_lane(key: str) -> tuple[int, str] | None:
    """The priority and the task that a key under ``lanes/`` stands for."""
    match = _LANE_KEY.fullmatch(key)
    return None if match is None else (_HIGHEST - int(match[1]), match[2])
