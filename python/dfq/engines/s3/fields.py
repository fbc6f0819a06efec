"""Single fields of a body, from JSON: what can't be used is Damaged here, and nowhere later."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any, Final

#: JSON's numbers are exact up to here wherever they are read; nobody counts as far.
_MOST: Final = 2**53
#: No lease lives longer: so long is what the verbs take.
_LONGEST_SECONDS: Final = 1e9
#: The years 1 to 9999: what a text can say.
_FIRST: Final = -62_135_596_800.0
_LAST: Final = 253_402_300_799.0
#: A version's name goes into a header.
_LONGEST_ETAG: Final = 200


class Damaged(ValueError):
    """A body can't be used; the text says why."""


def stamp(seconds: float) -> str:
    """A moment as it stands in a body."""
    moment = datetime.fromtimestamp(seconds, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def seconds_of(value: object) -> float:
    """The moment that :func:`stamp` wrote, or any ISO 8601 time, or seconds since 1970."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value)
    elif isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
            seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            raise Damaged(f"{value[:80]!r} is not a time") from None
    else:
        raise Damaged(f"{value!r:.80} is not a time")
    # Written so that NaN is none either.
    if not _FIRST <= seconds <= _LAST:
        raise Damaged(f"{value!r:.80} is not a time")
    return seconds


def maybe_seconds(value: object) -> float | None:
    """The moment, if there is one."""
    return None if value is None else seconds_of(value)


def maybe_stamp(seconds: float | None) -> str | None:
    """A moment as it stands in a body, if there is one."""
    return None if seconds is None else stamp(seconds)


def text(fields: dict[str, Any], key: str) -> str | None:
    """A text, or None."""
    value = fields.get(key)
    if value is not None and not isinstance(value, str):
        raise Damaged(f"{key} is no text")
    return value


def texts(fields: dict[str, Any], key: str) -> list[str]:
    """A list of texts."""
    values = fields.get(key) or []
    if not isinstance(values, list) or not all(isinstance(one, str) for one in values):
        raise Damaged(f"{key} is no list of texts")
    return values


def count(fields: dict[str, Any], key: str, default: int) -> int:
    """A whole number from 0 on."""
    value = fields.get(key)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < _MOST:
        raise Damaged(f"{key} is no count")
    return value


def span(fields: dict[str, Any], key: str, default: float) -> float:
    """How long something counts, in seconds."""
    value = fields.get(key)
    if value is None:
        return default
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise Damaged(f"{key} is no number of seconds")
    if not 0 <= value <= _LONGEST_SECONDS or not math.isfinite(value):
        raise Damaged(f"{key} is no number of seconds from 0 to {_LONGEST_SECONDS:g}")
    return float(value)


def etag(fields: dict[str, Any], key: str) -> str | None:
    """The name of a version, or None."""
    value = text(fields, key)
    if value is not None and not (
        value.isascii() and value.isprintable() and 0 < len(value) <= _LONGEST_ETAG
    ):
        raise Damaged(f"{key} names no version")
    return value


def flag(fields: dict[str, Any], key: str) -> bool:
    """Yes, or else no."""
    value = fields.get(key)
    if value is not None and not isinstance(value, bool):
        raise Damaged(f"{key} is neither true nor false")
    return value is True


def box(fields: dict[str, Any], key: str) -> dict[str, Any] | None:
    """A value in a box, so that null is a value too; None if there is none."""
    value = fields.get(key)
    if value is not None and not (isinstance(value, dict) and "value" in value):
        raise Damaged(f"{key} holds no value")
    return value
