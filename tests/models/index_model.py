"""What an index is, in plain Python: the slow truth that the compiled merge is held against."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

FIELD, LINE, ESCAPE = "\x1f", "\n", "\x1b"
_LETTERS = {"\n": "n", "\r": "r", "\x1f": "u", "\x1e": "s", "\x1b": "e"}
_MEANT = {letter: char for char, letter in _LETTERS.items()}
_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:[.,](\d+))?(?:[Zz]|([+-])(\d\d):?(\d\d))?"
)


def escape(text: str) -> str:
    """A field as it is written."""
    return "".join(ESCAPE + _LETTERS[char] if char in _LETTERS else char for char in text)


def unescape(text: str) -> str:
    """A field as it was meant."""
    return re.sub("\x1b(.)", lambda m: _MEANT.get(m[1], m[0]), text, flags=re.DOTALL)


def written(rows: Iterable[Iterable[str]]) -> bytes:
    """Rows in canonical form."""
    return "".join(FIELD.join(map(escape, row)) + LINE for row in rows).encode()


def time_ns(text: str) -> int | None:
    """Nanoseconds since 1970 of the extended form of ISO 8601."""
    found = _TIME.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second = map(int, found.groups()[:6])
    if hour > 23 or minute > 59 or second > 60:
        return None
    try:
        whole = datetime(year, month, day, hour, minute, tzinfo=UTC)
    except ValueError:
        return None
    if found[8]:
        offset = timedelta(hours=int(found[9]), minutes=int(found[10]))
        if int(found[9]) > 23 or int(found[10]) > 59:
            return None
        seconds_off = int(offset.total_seconds()) * (-1 if found[8] == "-" else 1)
    else:
        seconds_off = 0
    seconds = (whole - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1) + second
    fraction = (found[7] or "")[:9].ljust(9, "0")
    return (seconds - seconds_off) * 10**9 + int(fraction)


def normal_key(key: str, rule: str) -> str:
    """The key that ``key`` is kept under."""
    if rule == "exact":
        return key
    key = key.lower()
    if rule == "domain":
        while key and _is_blank(key[0]):
            key = key[1:]
        while key and (key[-1] == "." or _is_blank(key[-1])):
            key = key[:-1]
    return key


def _is_blank(char: str) -> bool:
    # Python counts the separators as white space; Unicode does not.
    return char.isspace() and char not in "\x1c\x1d\x1e\x1f"


@dataclass(frozen=True)
class Schema:
    """The columns that an index must have, counted from 0."""

    columns: int = 4
    key: int = 0
    updated_at: int = 2
    deleted_at: int = 3
    key_rule: str = "exact"


class IndexModel:
    """The records of an index, or of one shard of it."""

    def __init__(self, schema: Schema = Schema()) -> None:
        self.schema = schema
        #: Raw key -> raw fields, tombstones included.
        self.records: dict[bytes, tuple[bytes, ...]] = {}

    def put(self, body: bytes) -> int:
        """Take in the records of an inbox file; returns how many can't be taken."""
        refused = 0
        for raw in re.split(rb"[\n\x1e]", body):
            if raw:
                refused += not self._take(raw)
        return refused

    def _take(self, raw: bytes) -> bool:
        schema = self.schema
        try:
            fields = raw.decode().split(FIELD)
        except UnicodeDecodeError:
            return False
        if len(fields) == schema.columns + 1 and fields[-1] == "":
            fields.pop()
        if len(fields) > schema.columns:
            return False
        fields += [""] * (schema.columns - len(fields))
        key = escape(normal_key(unescape(fields[schema.key]), schema.key_rule))
        deleted = fields[schema.deleted_at]
        if not key or time_ns(fields[schema.updated_at]) is None:
            return False
        if deleted and not deleted.strip(" \t\n\f\r"):
            return False
        fields[schema.key] = key
        new = tuple(field.replace("\r", "\x1br").encode() for field in fields)
        old = self.records.get(key.encode())
        if old is None or self._rank(new) > self._rank(old):
            self.records[key.encode()] = new
        return True

    def _rank(self, fields: tuple[bytes, ...]) -> tuple[int, bool, tuple[bytes, ...]]:
        updated = time_ns(fields[self.schema.updated_at].decode())
        assert updated is not None
        return updated, fields[self.schema.deleted_at] != b"", fields

    def drop_deleted(self, before_ns: int) -> None:
        """Forget tombstones that are older than that."""
        for key, fields in list(self.records.items()):
            updated, deleted, _ = self._rank(fields)
            if deleted and updated < before_ns:
                del self.records[key]

    def compiled(self) -> bytes:
        """The bytes of the shard."""
        return b"".join(b"\x1f".join(self.records[key]) + b"\n" for key in sorted(self.records))

    def get(self, key: str) -> list[str] | None:
        """The fields of a living record."""
        raw = escape(normal_key(key, self.schema.key_rule)).encode()
        fields = self.records.get(raw)
        if fields is None or fields[self.schema.deleted_at]:
            return None
        return [unescape(field.decode()) for field in fields]
