"""Tables of texts, read from and written to CSV, TSV, JSON lines and USV as streams."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import IO, Any, NoReturn

from dfq.cli.rows import BadRow, read_records, read_rows
from dfq.cli.usv_stream import BadFile, usv_bytes
from dfq.payload import JSON

#: A longer record is refused, not loaded.
MAX_RECORD_BYTES = 16 << 20
_LOT = 1_000


@dataclass
class Table:
    """Rows of one width."""

    #: What the columns are called; None: nothing says it.
    names: list[str] | None
    rows: Iterator[list[str]]


def read_table(
    stream: IO[bytes], kind: str, *, source: str, header: bool, names: list[str] | None = None
) -> Table:
    """The table in a stream. ``header``: its first row names the columns."""
    if kind == "jsonl":
        return _json_table(stream, source)
    records = _sound(read_records(stream, kind, limit=MAX_RECORD_BYTES), source)
    if header:
        _, first = next(records, (0, None))
        names = first
    return Table(names, _of_one_width(records, source, names, ended=kind == "usv"))


def _sound(
    records: Iterable[tuple[int, list[str] | str]], source: str
) -> Iterator[tuple[int, list[str]]]:
    for number, record in records:
        if isinstance(record, str):
            raise BadFile(f"{source}: record {number} is {record}; mend it, then convert again")
        yield number, record


def _of_one_width(
    records: Iterator[tuple[int, list[str]]], source: str, names: list[str] | None, ended: bool
) -> Iterator[list[str]]:
    width = None if names is None else len(names)
    for number, record in records:
        width = len(record) if width is None else width
        if ended and len(record) == width + 1 and record[-1] == "":
            record.pop()
        if len(record) > width:
            raise BadFile(
                f"{source}: record {number} has {len(record)} fields where there are {width} "
                "columns; take out what is too much"
            )
        yield record + [""] * (width - len(record))


def _json_table(stream: IO[bytes], source: str) -> Table:
    values = _json_values(stream, source)
    number, first = next(values, (0, []))
    # The first line is looked at twice.
    whole = _with_first(number, first, values)
    if isinstance(first, dict):
        names = list(first)
        return Table(names, _objects(whole, source, names))
    return Table(None, _of_one_width(_lists(whole, source), source, None, ended=False))


def _json_values(stream: IO[bytes], source: str) -> Iterator[tuple[int, JSON]]:
    for row in read_rows(stream, "jsonl", limit=MAX_RECORD_BYTES):
        if isinstance(row, BadRow):
            _bad(source, row.number, row.problem)
        else:
            yield row.number, row.payload


def _bad(source: str, number: int, problem: str) -> NoReturn:
    raise BadFile(f"{source}: line {number}: {problem}; mend it, then convert again")


def _with_first(
    number: int, first: JSON, values: Iterator[tuple[int, JSON]]
) -> Iterator[tuple[int, JSON]]:
    if number:
        yield number, first
    yield from values


def _objects(
    values: Iterator[tuple[int, JSON]], source: str, names: list[str]
) -> Iterator[list[str]]:
    known = set(names)
    for number, value in values:
        if not isinstance(value, dict):
            _bad(source, number, "no object, as the first line is")
        strange = next((name for name in value if name not in known), None)
        if strange is not None:
            _bad(source, number, f"the first line has no {strange!r}")
        yield [_text(value.get(name)) for name in names]


def _lists(values: Iterator[tuple[int, JSON]], source: str) -> Iterator[tuple[int, list[str]]]:
    for number, value in values:
        if not isinstance(value, list) or not value:
            _bad(source, number, "neither an object nor a list with something in it")
        yield number, [_text(cell) for cell in value]


def _text(value: JSON) -> str:
    """A JSON value as a field: texts as they are, null as nothing, the rest as JSON."""
    import orjson

    if value is None:
        return ""
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def chosen_columns(table: Table, columns: list[str]) -> Table:
    """Only these columns, in this order: names, or numbers from 1."""
    places = [_place(name, table.names) for name in columns]

    def row(cells: list[str]) -> list[str]:
        try:
            return [cells[place] for place in places]
        except IndexError:
            raise BadFile(f"there are only {len(cells)} columns; leave the others out") from None

    names = None if table.names is None else [table.names[place] for place in places]
    return Table(names, (row(cells) for cells in table.rows))


def _place(name: str, names: list[str] | None) -> int:
    if names is not None and name in names:
        return names.index(name)
    if name.isdecimal() and 1 <= int(name) <= (len(names) if names is not None else 1 << 20):
        return int(name) - 1
    there = ", ".join(names) if names is not None else "numbers from 1, as nothing names them"
    raise BadFile(f"there is no column {name!r}; there are: {there}")


def written(table: Table, kind: str, *, header: bool) -> Iterator[bytes]:
    """The table in another format, in pieces."""
    if kind == "jsonl":
        names = table.names if header else None
        if twice := sorted({name for name in names or () if (names or []).count(name) > 1}):
            raise BadFile(
                f"more than one column is called {', '.join(map(repr, twice))}, and an object has "
                "each name once; rename them, choose with --columns, or use --no-header"
            )
        yield from (b"".join(_json_line(names, row) for row in lot) for lot in _lots(table.rows))
        return
    encode = _ENCODERS[kind]
    if header and table.names is not None:
        yield encode([table.names])
    for lot in _lots(table.rows):
        yield encode(lot)


def _lots(rows: Iterator[list[str]]) -> Iterator[list[list[str]]]:
    from itertools import islice

    while lot := list(islice(rows, _LOT)):
        yield lot


def _json_line(names: list[str] | None, row: list[str]) -> bytes:
    import orjson

    value = row if names is None else dict(zip(names, row, strict=True))
    return orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)


def csv_writer(write: Callable[[str], object], delimiter: str = ",") -> Any:
    """A writer of CSV whose lines end in a line feed, and which quotes either end of a line."""
    import csv

    # It quotes what its own line end consists of, so a bare carriage return would go unquoted.
    return csv.writer(_LineFeeds(write), delimiter=delimiter, lineterminator="\r\n")


class _LineFeeds:
    """Gets a line at a time."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write

    def write(self, line: str) -> object:
        return self._write(line.removesuffix("\r\n") + "\n")


def _csv(delimiter: str) -> Callable[[list[list[str]]], bytes]:
    def encode(rows: list[list[str]]) -> bytes:
        lines: list[str] = []
        csv_writer(lines.append, delimiter).writerows(rows)
        return "".join(lines).encode()

    return encode


_ENCODERS: dict[str, Callable[[list[list[str]]], bytes]] = {
    "usv": usv_bytes,
    "csv": _csv(","),
    "tsv": _csv("\t"),
}
