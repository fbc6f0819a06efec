"""Writes queue.json: whole or not at all, and never over somebody else's by accident.

Where it is kept (:mod:`dfq.cli.policy_places`) is a folder or a store; what is in it is the same.
"""

from __future__ import annotations

from typing import Any, Protocol

from dfq.errors import DfqError, InvalidPolicy, LayoutTooNew
from dfq.payload import JSON
from dfq.policy import LAYOUT_VERSION, Policy

FILE_NAME = "queue.json"
#: Keys of queue.json that say how the queue is laid out; the others are the policy.
LAYOUT_KEYS = ("dfq", "layout")


class QueueExists(DfqError, FileExistsError):
    """The queue has a policy already; `dfq init --update` changes it."""

    exit_code = 73


class Place(Protocol):
    """Where the queue.json of one queue is kept."""

    @property
    def name(self) -> str:
        """What messages call it."""
        ...

    def read(self) -> bytes | None:
        """What is there, or None."""
        ...

    def check(self, policy: Policy) -> None:
        """Raise InvalidPolicy if no queue there can keep to it."""
        ...

    def write(self, content: bytes) -> None:
        """Put this in place of what :meth:`read` found; QueueExists if that has changed."""
        ...


def write_policy(place: Place, given: dict[str, Any], layout: str | None, update: bool) -> Policy:
    """Make a queue.json from the settings given; the policy that is now in force."""
    before = _parsed(place)
    if before is not None and not update:
        raise QueueExists(f"{place.name} is there already; change it with --update, or edit it")
    content = before or {}
    if layout is not None and content and content.get("layout", "sharded") != layout:
        raise InvalidPolicy(
            f"{place.name}: the layout of a queue can't be changed; "
            "make another queue and push into it"
        )
    policy = Policy.from_json(
        {
            **{key: value for key, value in content.items() if key not in LAYOUT_KEYS},
            **_merged(content, given),
        }
    )
    place.check(policy)
    place.write(
        _encoded(
            {
                "dfq": LAYOUT_VERSION,
                "layout": layout or content.get("layout", "sharded"),
                **policy.to_json(),
            }
        )
    )
    return policy


def _merged(content: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """The settings given, with what is in force of the retry policy below them."""
    settings = dict(given)
    before = content.get("retry")
    if "retry" in settings and isinstance(before, dict):
        settings["retry"] = {**before, **settings["retry"]}
    if "lease_seconds" in settings and "heartbeat_seconds" not in settings:
        # A beat that suited the old lease may not suit the new one.
        settings["heartbeat_seconds"] = min(60.0, settings["lease_seconds"] / 3)
    return settings


def _parsed(place: Place) -> dict[str, Any] | None:
    import orjson

    body = place.read()
    if body is None:
        return None
    try:
        content: JSON = orjson.loads(body)
    except ValueError as error:
        raise InvalidPolicy(f"{place.name} is not JSON ({error}); mend it or delete it") from None
    if not isinstance(content, dict):
        raise InvalidPolicy(f"{place.name} must be a JSON object; mend it or delete it")
    version = content.get("dfq", LAYOUT_VERSION)
    if isinstance(version, int) and version > LAYOUT_VERSION:
        raise LayoutTooNew(
            f"{place.name} has layout {version}; this dfq knows {LAYOUT_VERSION} at most. "
            "Upgrade dfq."
        )
    return content


def _encoded(content: dict[str, Any]) -> bytes:
    import orjson

    return orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
