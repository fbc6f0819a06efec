"""Setting a damaged task aside: out of the way, with a reason, and nothing lost."""

from __future__ import annotations

import base64
from typing import Any, Final

from dfq.engines.s3.bodies import dumps, stamp
from dfq.engines.s3.bucket import Bucket
from dfq.engines.s3.keys import QUARANTINE, task_key
from dfq.engines.s3.view import Sighting
from dfq.store import BodyTooLarge

#: In text a body is longer by a third; a larger one goes into an object of its own.
_IN_TEXT_BYTES: Final = 4 << 20
#: What the names of such objects end with.
BYTES: Final = ".bytes"


def set_aside(bucket: Bucket, sighting: Sighting, reason: str, *, completed: bool = False) -> bool:
    """Move the task.json of a task that we hold to ``quarantine/``, byte by byte.

    Of a task that is completed already it may go without being held.
    """
    key = task_key(sighting.place)
    try:
        found = bucket.read(key)
    except BodyTooLarge:
        # Somebody put another there meanwhile: that one is left alone.
        return False
    if found is None:
        return False
    # Named after what it holds: setting the same aside twice makes one.
    name = f"{QUARANTINE}{sighting.task_id}-{found.etag[:16]}"
    kept: dict[str, Any]
    if len(found.body) > _IN_TEXT_BYTES:
        kept = {"body_in": name + BYTES}
        bucket.writes.create(name + BYTES, found.body)
    else:
        kept = {"body": base64.b64encode(found.body).decode()}
    body = dumps(
        {
            "dfq": 1,
            "key": key,
            "reason": reason,
            "at": stamp(bucket.clock.wall()),
            **kept,
            "nonce": bucket.writes.nonce(),
        }
    )
    bucket.writes.create(f"{name}.json", body)
    remove = bucket.erase if completed else bucket.vacate
    return remove(key, found.etag)


def set_aside_keys(bucket: Bucket) -> list[str]:
    """What was set aside, by the keys of the objects that say why."""
    keys = (stored.key for stored in bucket.list_all(QUARANTINE))
    return [key for key in keys if not key.endswith(BYTES)]
