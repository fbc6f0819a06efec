"""`dfq index put`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import IO, TYPE_CHECKING, Any

import click

from dfq.cli.indexes import open_index, takes_index
from dfq.cli.options import command as dfq_command
from dfq.cli.options import quiet_option
from dfq.cli.output import complain, counted, json_line, line, note
from dfq.cli.payloads import STDIN, payloads
from dfq.cli.rows import FORMATS, BadRow, Row, format_of, read_rows
from dfq.errors import InvalidRecord

if TYPE_CHECKING:
    from dfq.compiler.index import Index

BAD_INPUT = 65
BAD_LINES_SHOWN = 20
#: Records that are written together.
LOT = 5_000


@dfq_command(
    "dfq index put shops domain=example.com city=Bern",
    """dfq index put shops '{"domain": "example.org", "population": 7}'""",
    "dfq index put shops --file shops.csv",
    "dfq index scan shops | dfq index put shops -",
)
@takes_index
@click.argument("words", nargs=-1, metavar="[RECORD]...")
@click.option(
    "-f", "--file", "file_name", metavar="FILE", help="Put the rows of a file; - is stdin."
)
@click.option(
    "--format", "kind", type=click.Choice(FORMATS), help="What is in it, if its name won't say."
)
@click.option("--skip-bad", is_flag=True, help="Go on after a bad line.")
@quiet_option("Nothing but errors: no count, no progress bar.")
@click.pass_context
def command(
    ctx: click.Context,
    index: str,
    words: tuple[str, ...],
    file_name: str | None,
    kind: str | None,
    skip_bad: bool,
    quiet: bool | None,
    as_json: bool,
) -> None:
    """Put records into an index.

    A RECORD is a JSON object, or name=text and name:=JSON pairs that make one, or - for rows on
    stdin. With --file every row of a file is a record: JSON lines, or CSV, TSV or USV with a
    header. A record without updated_at is of now. The newest of a key counts, in whatever order
    they are put.

    A bad line ends it with exit code 65; the lines before it are put.
    """
    if words == (STDIN,):
        file_name, words = file_name or STDIN, ()
    if bool(words) == (file_name is not None):
        raise click.UsageError("give records, as in domain=example.com, or --file FILE")
    with open_index(index) as opened:
        if file_name is None:
            done, bad, stopped = opened.put_many(map(_object, payloads(list(words)))), 0, None
        else:
            silent = bool(quiet) or as_json
            done, bad, stopped = _put_file(opened, file_name, kind, skip_bad, silent)
    if as_json:
        json_line({"put": done, "bad": bad, "stopped_at": stopped})
    elif not quiet:
        line(f"put {counted(done, 'record')}")
    if stopped is not None:
        note(
            f"stopped at row {stopped}; every one before it is put. Mend it, or use --skip-bad "
            "to go on without it."
        )
        ctx.exit(BAD_INPUT)


def _object(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InvalidRecord(f"a record is an object, not {type(value).__name__}: {value!r:.80}")
    return value


def _put_file(
    index: Index, file_name: str, kind: str | None, skip_bad: bool, silent: bool
) -> tuple[int, int, int | None]:
    """How many were put, how many rows were bad, and the one that ended it."""
    from dfq.cli.progress import progress
    from dfq.compiler.records import MAX_RECORD_BYTES

    kind = format_of(file_name, kind)
    source = "stdin" if file_name == STDIN else file_name
    done = bad = 0
    with _opened(file_name) as stream, progress(f"putting {source}", None, silent=silent) as bar:
        lot: list[Mapping[str, Any]] = []
        for row in _checked(index, read_rows(stream, kind, limit=2 * MAX_RECORD_BYTES)):
            if isinstance(row, BadRow):
                bad += 1
                if bad <= BAD_LINES_SHOWN:
                    complain(f"{source}: row {row.number}: {row.problem}")
                if skip_bad:
                    continue
                return done + index.put_many(lot), bad, row.number
            lot.append(_object(row.payload))
            if len(lot) >= LOT:
                done += index.put_many(lot)
                lot = []
                bar.update(done)
        return done + index.put_many(lot), bad, None


def _checked(index: Index, rows: Iterator[Row | BadRow]) -> Iterator[Row | BadRow]:
    for row in rows:
        if isinstance(row, Row):
            try:
                index.rows([_object(row.payload)])
            except InvalidRecord as error:
                yield BadRow(row.number, str(error))
                continue
        yield row


def _opened(file_name: str) -> IO[bytes]:
    from dfq.cli.commands.push import NoInput

    try:
        return click.open_file(file_name, "rb")
    except OSError as error:
        raise NoInput(f"{file_name} can't be read: {error.strerror}") from None
