"""JSON in and out: strict, bounded, and never silently changed."""

from __future__ import annotations

import math
from typing import Any

import orjson

from dfq.errors import InvalidTask

#: Any JSON value. What comes out of a queue is exactly what went in.
JSON = Any

# Only what JSON itself has: a datetime or a dataclass would come back as something else.
_STRICT = (
    orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
    | orjson.OPT_PASSTHROUGH_SUBCLASS
)

_CONTAINERS = (dict, list, tuple)

#: Deeper nesting than this is refused: the next reader may have a smaller stack.
MAX_DEPTH = 200


def encode(value: JSON, *, limit: int, what: str = "payload") -> bytes:
    """``value`` as JSON, or an error that says what is wrong with it."""
    # First, for orjson counts no tuples: deep ones make it write beyond its buffer.
    check_depth(value, what, limit=limit)
    try:
        encoded = orjson.dumps(value, option=_STRICT)
    except (TypeError, RecursionError) as error:
        raise InvalidTask(f"the {what} can't be stored as JSON: {error}") from None
    if len(encoded) > limit:
        raise InvalidTask(
            f"the {what} is {len(encoded):,} bytes of JSON; this queue takes {limit:,}. "
            "Store it elsewhere and push where it is, or raise the limit in queue.json."
        )
    # orjson writes NaN and infinities as null; only then is a closer look needed.
    if b"null" in encoded:
        _refuse_not_finite(value, what)
    return encoded


def decode(encoded: bytes) -> JSON:
    """What :func:`encode` wrote. Raises ValueError for anything that is not JSON."""
    return orjson.loads(encoded)


def _refuse_not_finite(value: JSON, what: str) -> None:
    remaining = [value]
    while remaining:
        item = remaining.pop()
        if isinstance(item, float) and not math.isfinite(item):
            raise InvalidTask(f"the {what} contains {item}, which JSON can't hold; use null")
        if isinstance(item, dict):
            remaining.extend(item.values())
        elif isinstance(item, list | tuple):
            remaining.extend(item)


def check_depth(value: JSON, what: str = "payload", *, limit: int | None = None) -> None:
    """Refuse nesting beyond :data:`MAX_DEPTH`, and more containers than fit into ``limit`` bytes.

    The second keeps this bounded for a list that holds another twice, which holds another
    twice, and so on.
    """
    level = [value] if isinstance(value, _CONTAINERS) else []
    count = 0
    for _ in range(MAX_DEPTH):
        if not level:
            return
        count += len(level)
        if limit is not None and 2 * count > limit:
            raise InvalidTask(f"the {what} is more than {limit:,} bytes of JSON; make it smaller")
        level = [
            child
            for item in level
            for child in (item.values() if isinstance(item, dict) else item)
            if isinstance(child, _CONTAINERS)
        ]
    if level:
        raise InvalidTask(f"the {what} is nested more than {MAX_DEPTH} deep; flatten it")
