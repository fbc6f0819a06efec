"""Rows of a file as payloads: JSON lines, CSV and USV, read as a stream with bounded memory.

A row that can't be read is yielded as :class:`BadRow` with its line number, and reading goes
on after it, so the caller decides whether to stop.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

import click

from dfq.payload import JSON

#: A name's ending -> the format of the file.
SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".usv": "usv",
}
FORMATS = ("jsonl", "csv", "tsv", "usv")

_CHUNK = 1 << 16

#: A number and cells; a text in place of them says what is wrong.
_Record = tuple[int, list[str] | str]


@dataclass(frozen=True)
class Row:
    """One payload and where it stands: a line number, for USV a record number."""

    number: int
    payload: JSON


@dataclass(frozen=True)
class BadRow:
    """A row that can't be read."""

    number: int
    problem: str


def format_of(file_name: str, given: str | None) -> str:
    """The format of a file: as given, or by its name."""
    if given is not None:
        return given
    for suffix, kind in SUFFIXES.items():
        if file_name.lower().endswith(suffix):
            return kind
    if file_name == "-":
        return "jsonl"
    raise click.UsageError(
        f"the name {file_name!r} does not say what is in the file; add --format "
        + ", ".join(FORMATS)
    )


def read_records(stream: IO[bytes], kind: str, *, limit: int) -> Iterator[_Record]:
    """The records of a CSV, TSV or USV file, the header among them."""
    if kind == "usv":
        return _usv_records(stream, limit)
    return _csv_records(stream, "\t" if kind == "tsv" else ",", limit)


def read_rows(stream: IO[bytes], kind: str, *, limit: int) -> Iterator[Row | BadRow]:
    """The rows of ``stream``; no row of more than ``limit`` bytes is kept in memory."""
    if kind == "jsonl":
        return _json_rows(stream, limit)
    return _named_cells(read_records(stream, kind, limit=limit), ended=kind == "usv")


def _json_rows(stream: IO[bytes], limit: int) -> Iterator[Row | BadRow]:
    import orjson

    for number, line in _lines(stream, limit):
        if line is None:
            yield BadRow(number, _too_long(limit))
            continue
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        line = line.strip()
        if not line:
            continue
        try:
            yield Row(number, orjson.loads(line))
        except ValueError as error:
            yield BadRow(number, f"not one JSON value: {error}")


def _lines(stream: IO[bytes], limit: int) -> Iterator[tuple[int, bytes | None]]:
    """Numbered lines; None for one that is too long, which is skipped, not kept."""
    number = 0
    while line := stream.readline(limit + 1):
        number += 1
        if len(line) <= limit or line.endswith(b"\n"):
            yield number, line
            continue
        while line and not line.endswith(b"\n"):
            line = stream.readline(_CHUNK)
        yield number, None


def _too_long(limit: int) -> str:
    return f"longer than {limit:,} bytes, the largest payload this queue takes"


def _csv_records(stream: IO[bytes], delimiter: str, limit: int) -> Iterator[_Record]:
    """Numbered CSV records; a text in place of one says what is wrong with it."""
    import csv

    too_long: list[int] = []

    def text() -> Iterator[str]:
        for number, line in _lines(stream, limit):
            if line is None:
                too_long.append(number)
                yield "\n"
                continue
            # Bytes that are not UTF-8 come through and are refused with their row.
            yield line.decode("utf-8-sig" if number == 1 else "utf-8", "surrogateescape")

    csv.field_size_limit(limit)
    reader = csv.reader(text(), delimiter=delimiter, strict=True)
    while True:
        start = reader.line_num + 1
        try:
            record = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield reader.line_num, str(error)
            continue
        if too_long:
            yield too_long.pop(), _too_long(limit)
        elif record:
            yield start, record


def _usv_records(stream: IO[bytes], limit: int) -> Iterator[_Record]:
    from dfq.cli.usv_stream import usv_records

    return usv_records(stream, limit)


def _named_cells(records: Iterator[_Record], ended: bool = False) -> Iterator[Row | BadRow]:
    """Objects from records, named by the first one.

    ``ended``: a separator may end the last cell as well as stand between cells.
    """
    header: list[str] | None = None
    for number, record in records:
        if isinstance(record, str):
            yield BadRow(number, record)
            if header is None:
                return
            continue
        if ended and record[-1] == "" and (header is None or len(record) == len(header) + 1):
            record = record[:-1]
        if header is None:
            header = record
            doubled = {name for name in header if header.count(name) > 1}
            if doubled:
                yield BadRow(number, f"the header names {min(doubled)!r} twice")
                return
        elif len(record) != len(header):
            yield BadRow(number, f"{len(record)} cells where the header names {len(header)}")
        else:
            yield Row(number, dict(zip(header, record, strict=True)))
