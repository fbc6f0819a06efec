"""queue.json of a bucket: the policy that whoever opens the queue keeps to."""

from __future__ import annotations

from typing import Final

from dfq.engines.s3.bodies import Damaged, loads
from dfq.engines.s3.keys import POLICY
from dfq.errors import InvalidPolicy, LayoutTooNew
from dfq.policy import LAYOUT_VERSION, Policy
from dfq.store import MAX_BODY_BYTES, Store

#: For the history of errors, and all else that is known of a task.
_ROOM_BYTES: Final = 1 << 20


def checked_policy(policy: Policy, where: str) -> Policy:
    """The policy, if a store can keep what it allows: a record holds a task and its result."""
    allowed = policy.max_payload_bytes + policy.max_result_bytes
    if allowed > MAX_BODY_BYTES - _ROOM_BYTES:
        raise InvalidPolicy(
            f"{where}: max_payload_bytes and max_result_bytes allow {allowed:,} bytes together; in "
            f"a bucket a task and its result share one object, and {MAX_BODY_BYTES - _ROOM_BYTES:,}"
            " is the most. Lower them, and keep what is larger elsewhere"
        )
    return policy


def policy_in(store: Store) -> Policy:
    """The policy in a store's queue.json; the defaults where there is none."""
    found = store.read(POLICY)
    if found is None:
        return Policy()
    where = f"{store.url}/{POLICY}"
    try:
        settings = loads(found.body, POLICY)
    except Damaged as error:
        raise InvalidPolicy(f"{where}: {error}; mend it, or delete it for the defaults") from None
    version = settings.pop("dfq", LAYOUT_VERSION)
    if isinstance(version, int) and version > LAYOUT_VERSION:
        raise LayoutTooNew(
            f"{store.url} has layout {version}; this dfq knows layout {LAYOUT_VERSION} at most. "
            "Upgrade dfq"
        )
    # In a bucket any layout is seen; the key is there for folders that are copied to one.
    settings.pop("layout", None)
    try:
        policy = Policy.from_json(settings)
    except InvalidPolicy as error:
        raise InvalidPolicy(f"{where}: {error}") from None
    return checked_policy(policy, where)
