"""Setting a damaged task aside: out of the way, with a reason, and nothing lost."""

from __future__ import annotations

import base64

from dfq.engines.s3.bodies import dumps, stamp
from dfq.engines.s3.bucket import Bucket
from dfq.engines.s3.keys import QUARANTINE, task_key
from dfq.engines.s3.view import Sighting


def set_aside(bucket: Bucket, sighting: Sighting, reason: str, *, completed: bool = False) -> bool:
    """Move the task.json of a task that we hold to ``quarantine/``, byte by byte.

    Of a task that is completed already it may go without being held.
    """
    key = task_key(sighting.place)
    found = bucket.read(key)
    if found is None:
        return False
    body = dumps(
        {
            "dfq": 1,
            "key": key,
            "reason": reason,
            "at": stamp(bucket.clock.wall()),
            "body": base64.b64encode(found.body).decode(),
            "nonce": bucket.writes.nonce(),
        }
    )
    # Named after what it holds: setting the same aside twice makes one.
    name = f"{QUARANTINE}{sighting.task_id}-{found.etag[:16]}.json"
    bucket.writes.create(name, body)
    remove = bucket.erase if completed else bucket.vacate
    return remove(key, found.etag)
