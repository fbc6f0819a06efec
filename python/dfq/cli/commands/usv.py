"""`dfq usv`: its commands, each in a function."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import click

from dfq.cli.options import Command, Group, debug_option, json_option, quiet_option
from dfq.cli.output import complain, counted, json_line, line, note, printable
from dfq.cli.rows import FORMATS, format_of

STDIN = "-"
TABLE_ROWS = 1_000
#: The widest cell of a table for people.
CELL_WIDTH = 60
PROBLEMS_SHOWN = 20
#: A smaller file is done before a bar could be read.
LONG_BYTES = 32 << 20


@click.group(
    cls=Group,
    examples=(
        "dfq usv convert orders.csv new.usv",
        "dfq usv head orders.usv",
        "dfq usv cat orders.usv --as jsonl --columns city,order",
        "dfq usv check orders.usv",
        "dfq usv count orders.usv",
    ),
)
@json_option
@debug_option
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """Convert, check and look at USV files.

    USV is a table of texts with control characters between them: fields are separated by 0x1F,
    records end with a line feed, and nothing needs quotes. The form with symbols (␟ ␞) is read as
    well.
    """
    ctx.obj = as_json


def _examples(*examples: str) -> dict[str, Any]:
    return {"cls": Command, "examples": examples}


header_option = click.option(
    "--header/--no-header",
    default=None,
    help="Whether the first row names the columns; by default yes, unless datapackage.json does.",
)
from_option = click.option(
    "--from", "source_kind", type=click.Choice(FORMATS), help="What SOURCE is, if not by its name."
)
columns_option = click.option(
    "--columns", metavar="NAMES", help="Only these, in this order: names or numbers, by commas."
)


@command.command(
    "convert",
    **_examples(
        "dfq usv convert orders.csv new.usv",
        "dfq usv convert orders.usv - --to jsonl",
        "cut -d, -f2 orders.csv | dfq usv convert - cities.usv --from csv",
    ),
)
@click.argument("source")
@click.argument("target")
@from_option
@click.option(
    "--to", "target_kind", type=click.Choice(FORMATS), help="What TARGET shall be, likewise."
)
@header_option
@columns_option
@click.option("--force", is_flag=True, help="Replace TARGET if it is there.")
@quiet_option("No progress bar, no count.")
@json_option
@debug_option
def convert(
    source: str,
    target: str,
    source_kind: str | None,
    target_kind: str | None,
    header: bool | None,
    columns: str | None,
    force: bool,
    quiet: bool | None,
    as_json: bool,
) -> None:
    """Convert between CSV, TSV, JSON lines and USV.

    The names tell the formats; `-` is stdin or stdout. Everything is text: a number of a JSON line
    becomes a text, null an empty one. TARGET appears whole or not at all. --json tells what was
    written; it can't stand beside a table that goes to stdout itself.
    """
    from dfq.cli.usv_files import put_together

    as_json = _as_json(as_json)
    if as_json and target == STDIN:
        raise click.UsageError("--json and a TARGET of `-` both want stdout; name a file")
    to = format_of(target, target_kind)
    written = put_together(
        target,
        _pieces(source, source_kind, to, header, columns, bool(quiet)),
        force=force,
    )
    if as_json:
        json_line({"file": target, "format": to, "bytes": written})
        return
    note(f"wrote {counted(written, 'byte')} to {_called(target)}", quiet=bool(quiet))


def _pieces(
    source: str,
    source_kind: str | None,
    to: str,
    header: bool | None,
    columns: str | None,
    quiet: bool,
) -> Iterator[bytes]:
    from dfq.cli.progress import progress
    from dfq.cli.usv_files import opened, size_of
    from dfq.cli.usv_tables import written

    with opened(source) as stream:
        total = size_of(stream)
        with progress(f"reading {_called(source)}", total, silent=quiet, unit="bytes") as bar:
            table, header = _table(stream, source, source_kind, header, columns)
            done = 0
            for piece in written(table, to, header=header):
                yield piece
                done += len(piece)
                bar.update(done if total is None else stream.tell())


def _table(
    stream: Any, source: str, kind: str | None, header: bool | None, columns: str | None
) -> tuple[Any, bool]:
    """The table in a stream, and whether its header is to be written, too."""
    from dfq.cli.usv_files import names_beside
    from dfq.cli.usv_tables import chosen_columns, read_table

    kind = format_of(source, kind)
    names = names_beside(source) if kind == "usv" and header is None else None
    first = names is None if header is None else header
    table = read_table(stream, kind, source=_called(source), header=first, names=names)
    if columns:
        table = chosen_columns(table, [name.strip() for name in columns.split(",")])
    return table, header is not False


@command.command(
    "cat",
    **_examples(
        "dfq usv cat orders.usv",
        "dfq usv cat orders.usv --as jsonl --columns city,order",
        "dfq usv cat - < orders.usv",
    ),
)
@click.argument("source")
@click.option(
    "--as",
    "style",
    type=click.Choice(("table", *FORMATS)),
    default="csv",
    show_default=True,
    help="How.",
)
@columns_option
@click.option("--limit", type=click.IntRange(min=0), help="So many rows; 0: all.")
@header_option
@json_option
@debug_option
def cat(
    source: str,
    style: str,
    columns: str | None,
    limit: int | None,
    header: bool | None,
    as_json: bool,
) -> None:
    """Print a USV file as a table, CSV, TSV, JSON lines or USV.

    A table is for people: at most 1,000 rows unless --limit says otherwise, long cells cut.
    """
    limit = TABLE_ROWS if limit is None and style == "table" else limit
    _print(source, "jsonl" if _as_json(as_json) else style, columns, limit or 0, header)


@command.command("head", **_examples("dfq usv head orders.usv", "dfq usv head orders.usv -n 1"))
@click.argument("source")
@click.option(
    "-n", "--limit", type=click.IntRange(min=0), default=10, show_default=True, help="Rows."
)
@columns_option
@header_option
@json_option
@debug_option
def head(source: str, limit: int, columns: str | None, header: bool | None, as_json: bool) -> None:
    """Print the first rows of a USV file as a table.

    Nothing behind them is read, however large the file is.
    """
    _print(source, "jsonl" if _as_json(as_json) else "table", columns, limit, header)


def _print(source: str, style: str, columns: str | None, limit: int, header: bool | None) -> None:
    from dfq.cli.progress import progress
    from dfq.cli.usv_files import opened, size_of
    from dfq.cli.usv_tables import Table, written

    with opened(source) as stream:
        table, header = _table(stream, source, "usv", header, columns)
        rows = islice(table.rows, limit) if limit else table.rows
        if style == "table":
            _print_table(table.names, list(rows))
            if limit and next(table.rows, None) is not None:
                note(f"there are more than these {limit:,}; --limit 0 prints all")
            return
        # Where the rows themselves are seen, a bar would stand among them.
        silent = sys.stdout.isatty()
        total = None if limit else size_of(stream)
        with progress(f"reading {_called(source)}", total, silent=silent, unit="bytes") as bar:
            done = 0
            for piece in written(Table(table.names, iter(rows)), style, header=header):
                click.echo(piece, nl=False)
                done += len(piece)
                bar.update(done if total is None else stream.tell())


def _print_table(names: list[str] | None, rows: list[list[str]]) -> None:
    from dfq.cli.output import table

    if not rows:
        note("no rows")
        return
    header = names or [str(number) for number in range(1, len(rows[0]) + 1)]
    table(header, [[_cut(cell) for cell in row] for row in rows])


def _cut(cell: str) -> str:
    cell = printable(cell)
    return cell if len(cell) <= CELL_WIDTH else f"{cell[: CELL_WIDTH - 1]}…"


@command.command(
    "check", **_examples("dfq usv check orders.usv", "dfq usv check orders.usv --width 2 --json")
)
@click.argument("files", nargs=-1, required=True)
@click.option("--width", type=click.IntRange(min=1), help="How many columns there must be.")
@json_option
@debug_option
@click.pass_context
def check(ctx: click.Context, files: tuple[str, ...], width: int | None, as_json: bool) -> None:
    """Look whole files through: UTF-8, the length of records, the number of fields.

    Without --width the first record says how many fields there are. Fewer are allowed and count
    as empty. Exit code 65: a record is bad.
    """
    from dfq.cli.usv_files import width_of
    from dfq.cli.usv_stream import looked_through, looks_visible

    bad = 0
    as_json = _as_json(as_json)
    for file in files:
        visible = looks_visible(file)
        with _of_files("checking", file, files):
            found = looked_through(file, width or width_of(file), visible)
        bad += found["bad"]
        if as_json:
            problems = [{"record": n, "problem": problem} for n, problem in found["problems"]]
            json_line({"file": file, **found, "problems": problems})
            continue
        for number, problem in found["problems"][:PROBLEMS_SHOWN]:
            complain(f"{file}: record {number}: {problem}")
        if found["unended"]:
            note(f"{file}: the last record has no line feed; it may be cut off")
        shorter = f", {found['short']:,} short" if found["short"] else ""
        line(f"{file}: {counted(found['records'], 'record')}, {found['bad']:,} bad{shorter}")
    ctx.exit(65 if bad else 0)


@command.command("count", **_examples("dfq usv count orders.usv", "dfq usv count *.usv --json"))
@click.argument("files", nargs=-1, required=True)
@json_option
@debug_option
def count(files: tuple[str, ...], as_json: bool) -> None:
    """Count the records of files, a header included."""
    from dfq.cli.usv_stream import counted_records, looks_visible

    total = 0
    as_json = _as_json(as_json)
    for file in files:
        visible = looks_visible(file)
        with _of_files("counting", file, files):
            records = counted_records(file, visible)
        total += records
        if as_json:
            json_line({"file": file, "records": records})
        else:
            line(f"{records:>12,} {file}")
    if len(files) > 1 and not as_json:
        line(f"{total:>12,} in all")


@contextmanager
def _of_files(doing: str, file: str, files: tuple[str, ...]) -> Iterator[None]:
    """A bar that says which file is at hand, and how many are done."""
    from dfq.cli.progress import progress

    place = files.index(file)
    silent = os.path.getsize(file) < LONG_BYTES  # noqa: PTH202 - pathlib is slow to import
    with progress(f"{doing} {file}", len(files), silent=silent, unit="files") as bar:
        bar.update(place)
        yield
        bar.update(place + 1)


def _as_json(here: bool) -> bool:
    """Whether --json was given, here or before the name of the command."""
    return here or bool(click.get_current_context().obj)


def _called(file: str) -> str:
    return "stdin or stdout" if file == STDIN else file
