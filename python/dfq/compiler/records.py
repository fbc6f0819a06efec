"""Records as Python has them, and as rows of text."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any, Final

import orjson

from dfq import _core
from dfq.compiler.descriptor import Descriptor, Field
from dfq.errors import InvalidRecord
from dfq.policy import nearest

#: What put() takes; a merge takes twice as much.
MAX_RECORD_BYTES: Final = 8 * 1024 * 1024


def row_of(
    descriptor: Descriptor, record: Mapping[str, Any], stamp: Callable[[], str]
) -> list[str]:
    """The fields of a record in the order of the columns, its key normalised.

    ``stamp`` gives the time of a record that has none.
    """
    if not isinstance(record, Mapping):
        raise InvalidRecord(f"a record is an object, not {type(record).__name__}")
    unknown = [name for name in record if not descriptor.has(name)]
    if unknown:
        advice = nearest(str(unknown[0]), list(descriptor.columns))
        raise InvalidRecord(
            f"the index has no column {unknown[0]!r}; {advice} "
            "Columns are added with `dfq index create --add`."
        )
    row = [_text(field, record.get(field.name)) for field in descriptor.fields]
    key, updated = descriptor.column(descriptor.key), descriptor.column(descriptor.updated_at)
    row[key] = key_of(descriptor, row[key])
    if not row[updated]:
        row[updated] = stamp()
    elif _core.parse_time_ns(row[updated]) is None:
        raise InvalidRecord(
            f"{descriptor.updated_at} is {row[updated][:80]!r}, which is no time; write it as "
            "2026-11-18T20:13:00Z"
        )
    size = sum(map(len, row))
    if size > MAX_RECORD_BYTES:
        raise InvalidRecord(
            f"the record {row[key][:80]!r} has {size:,} characters; {MAX_RECORD_BYTES:,} at most. "
            "Keep the large field elsewhere and put its name here."
        )
    return row


def key_of(descriptor: Descriptor, key: str) -> str:
    """The key as it is stored."""
    normal = _core.normal_key(_utf8(descriptor.key, key), descriptor.key_rule)
    if not normal:
        raise InvalidRecord(f"the key {descriptor.key!r} is empty; every record needs one")
    return normal


def tombstone(descriptor: Descriptor, key: str, at: str) -> list[str]:
    """The row that says: this record is deleted."""
    row = [""] * len(descriptor.fields)
    row[descriptor.column(descriptor.key)] = key_of(descriptor, key)
    row[descriptor.column(descriptor.updated_at)] = at
    row[descriptor.column(descriptor.deleted_at)] = at
    return row


def record_of(descriptor: Descriptor, row: Sequence[str]) -> dict[str, str]:
    """A row as an object; columns that were added later are empty."""
    padded = [*row, *[""] * (len(descriptor.fields) - len(row))]
    return dict(zip(descriptor.columns, padded, strict=True))


def iso(seconds: float) -> str:
    """A moment as text."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds")[:-6] + "Z"


def seconds_of(text: object) -> float | None:
    """The moment that a text names, in seconds since 1970; None if it is none."""
    found = _core.parse_time_ns(text) if isinstance(text, str) else None
    return None if found is None else found / 1e9


def _text(field: Field, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        text = _utf8(field.name, value)
    elif isinstance(value, datetime | date):
        text = value.isoformat()
    elif isinstance(value, float) and not math.isfinite(value):
        raise InvalidRecord(f"{field.name} is {value}, which is no number a file can hold")
    else:
        try:
            text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
        except TypeError as error:
            raise InvalidRecord(f"{field.name} can't be stored: {error}") from None
    if text and not _fits(field.type, text):
        raise InvalidRecord(f"{field.name} is {text[:80]!r}, which is no {field.type}")
    return text


def _utf8(name: str, text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidRecord(f"{name} is no text that UTF-8 can hold: {text[:80]!r}") from None
    return text


def _fits(kind: str, text: str) -> bool:
    if kind == "boolean":
        return text in ("true", "false")
    if kind == "datetime":
        return _core.parse_time_ns(text) is not None
    try:
        if kind == "integer":
            int(text)
        elif kind == "number":
            return math.isfinite(float(text))
    except ValueError:
        return False
    return True
