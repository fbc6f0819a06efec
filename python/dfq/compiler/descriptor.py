"""What an index holds: a tabular data package, with what dfq needs to know beside it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import orjson

from dfq.errors import InvalidIndex
from dfq.policy import nearest

KEY_RULES: Final = ("exact", "lower", "domain")
TYPES: Final = ("string", "integer", "number", "boolean", "datetime")
#: More columns than that are a mistake.
MAX_COLUMNS: Final = 10_000
DEFAULT_KEEP_DELETED_DAYS: Final = 30.0
VERSION: Final = 1

_DIALECT = {
    "csvddfVersion": "1.2",
    "delimiter": "\u001f",
    "lineTerminator": "\n",
    "quoteChar": None,
    "header": False,
}
#: Escapes and separators in a name would make a header unreadable.
_NAME = re.compile(r"[^\x00-\x1f\x7f]{1,200}")


@dataclass(frozen=True)
class Field:
    """A column."""

    name: str
    type: str = "string"


@dataclass(frozen=True)
class Descriptor:
    """The columns of an index and how its records are told apart."""

    fields: tuple[Field, ...]
    #: The column that names a record.
    key: str
    #: The column whose time decides which of two records is newer.
    updated_at: str
    #: The column that is not empty in a record that says: deleted.
    deleted_at: str
    key_rule: str = "exact"
    #: How long it is remembered that a record was deleted.
    keep_deleted_days: float = DEFAULT_KEEP_DELETED_DAYS
    name: str = "index"
    #: The whole file: what others wrote into it is kept.
    raw: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns in their order."""
        return tuple(one.name for one in self.fields)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.columns)}

    def has(self, name: object) -> bool:
        """Whether there is such a column."""
        return name in self._places

    def column(self, name: str) -> int:
        """Where a column stands."""
        return self._places[name]

    @property
    def schema_sha256(self) -> str:
        """What tells one schema from another."""
        schema = [[one.name, one.type] for one in self.fields]
        rules = [self.key, self.updated_at, self.deleted_at, self.key_rule]
        return hashlib.sha256(orjson.dumps([schema, rules])).hexdigest()

    def grown(self, more: Iterable[str | Field]) -> Descriptor:
        """The same with columns more at the end."""
        fields = (*self.fields, *map(as_field, more))
        _check_names(fields)
        raw: dict[str, Any] = orjson.loads(orjson.dumps(dict(self.raw)))
        if raw:
            raw["resources"][0]["schema"]["fields"] += [
                {"name": one.name, "type": one.type} for one in fields[len(self.fields) :]
            ]
        return Descriptor(
            fields=fields,
            key=self.key,
            updated_at=self.updated_at,
            deleted_at=self.deleted_at,
            key_rule=self.key_rule,
            keep_deleted_days=self.keep_deleted_days,
            name=self.name,
            raw=raw,
        )

    def check_grown_from(self, older: Descriptor) -> None:
        """Refuse what is more than columns added at the end."""
        for name in ("key", "updated_at", "deleted_at", "key_rule"):
            was, now = getattr(older, name), getattr(self, name)
            if was != now:
                raise InvalidIndex(
                    f"the index has {name} = {was!r} and can't change it to {now!r}; "
                    "make another index and put the records into it"
                )
        if self.fields[: len(older.fields)] != older.fields:
            raise InvalidIndex(
                f"the index has the columns {', '.join(older.columns)}; columns may only be added "
                f"after {older.columns[-1]!r}, none changed, moved or left out"
            )

    def dumps(self, nonce: str) -> bytes:
        """datapackage.json."""
        raw = dict(self.raw) or {
            "profile": "tabular-data-package",
            "name": self.name,
            "resources": [
                {
                    "profile": "tabular-data-resource",
                    "name": self.name,
                    "path": "shards/*.usv",
                    "format": "usv",
                    "encoding": "utf-8",
                    "dialect": _DIALECT,
                    "schema": {
                        "fields": [{"name": one.name, "type": one.type} for one in self.fields],
                        "primaryKey": self.key,
                    },
                }
            ],
        }
        raw["dfq"] = {
            **raw.get("dfq", {}),
            "version": VERSION,
            "updated_at": self.updated_at,
            "deleted_at": self.deleted_at,
            "key_rule": self.key_rule,
            "keep_deleted_days": self.keep_deleted_days,
            "nonce": nonce,
        }
        return orjson.dumps(raw, option=orjson.OPT_INDENT_2)


def new_descriptor(
    columns: Sequence[str | Field],
    *,
    key: str | None = None,
    updated_at: str = "updated_at",
    deleted_at: str = "deleted_at",
    key_rule: str = "exact",
    keep_deleted_days: float = DEFAULT_KEEP_DELETED_DAYS,
    name: str = "index",
) -> Descriptor:
    """A descriptor for a new index; the columns that every index has are added at the end."""
    fields = [as_field(column) for column in columns]
    if not fields:
        raise InvalidIndex("an index needs a column at least: the key of its records")
    names = [one.name for one in fields]
    always = (updated_at, deleted_at)
    fields.extend(Field(column, "datetime") for column in always if column not in names)
    return _checked(
        Descriptor(
            fields=tuple(fields),
            key=names[0] if key is None else key,
            updated_at=updated_at,
            deleted_at=deleted_at,
            key_rule=key_rule,
            keep_deleted_days=keep_deleted_days,
            name=name,
        )
    )


def read_descriptor(body: bytes, where: str) -> Descriptor:
    """Read datapackage.json; raises InvalidIndex naming what is wrong with it."""
    try:
        raw = orjson.loads(body)
        own = raw["dfq"]
        schema = raw["resources"][0]["schema"]
        if own["version"] != VERSION:
            raise InvalidIndex(
                f"{where} is of version {own['version']!r}, and this dfq knows {VERSION}; "
                "upgrade dfq"
            )
        primary = schema["primaryKey"]
        if isinstance(primary, list):
            (primary,) = primary
        descriptor = Descriptor(
            fields=tuple(
                Field(_text(one["name"]), _text(one.get("type", "string")))
                for one in schema["fields"]
            ),
            key=_text(primary),
            updated_at=_text(own["updated_at"]),
            deleted_at=_text(own["deleted_at"]),
            key_rule=_text(own.get("key_rule", "exact")),
            keep_deleted_days=float(own.get("keep_deleted_days", DEFAULT_KEEP_DELETED_DAYS)),
            name=str(raw.get("name", "index")),
            raw=raw,
        )
    except InvalidIndex:
        raise
    except (ValueError, KeyError, TypeError, LookupError, AttributeError) as error:
        raise InvalidIndex(
            f"{where} can't be read ({type(error).__name__}: {error}); mend it by hand, or restore "
            "an earlier version of it"
        ) from None
    return _checked(descriptor)


def as_field(column: str | Field) -> Field:
    """A column from ``name`` or ``name:type``."""
    if isinstance(column, Field):
        return column
    name, colon, kind = column.rpartition(":")
    return Field(name, kind) if colon and kind in TYPES else Field(column)


def _checked(descriptor: Descriptor) -> Descriptor:
    _check_names(descriptor.fields)
    for role in ("key", "updated_at", "deleted_at"):
        name = getattr(descriptor, role)
        if name not in descriptor.columns:
            advice = nearest(name, list(descriptor.columns))
            raise InvalidIndex(f"the column {name!r} ({role}) is not there; {advice}")
    if len({descriptor.key, descriptor.updated_at, descriptor.deleted_at}) < 3:
        raise InvalidIndex("the key, the time and the mark of deletion are three columns")
    if descriptor.key_rule not in KEY_RULES:
        raise InvalidIndex(f"key_rule is {', '.join(KEY_RULES)}, not {descriptor.key_rule!r}")
    if not 0 <= descriptor.keep_deleted_days <= 1e6:
        raise InvalidIndex(f"keep_deleted_days is {descriptor.keep_deleted_days}; 0 at least")
    return descriptor


def _check_names(fields: Sequence[Field]) -> None:
    if len(fields) > MAX_COLUMNS:
        raise InvalidIndex(f"{len(fields):,} columns are too many; {MAX_COLUMNS:,} at most")
    seen = set()
    for one in fields:
        if not _NAME.fullmatch(one.name) or one.name != one.name.strip():
            raise InvalidIndex(f"{one.name[:80]!r} is no name for a column; use printable text")
        if one.name in seen:
            raise InvalidIndex(f"the column {one.name!r} is there twice; rename one of them")
        seen.add(one.name)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value
