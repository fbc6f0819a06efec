"""`dfq index scan`."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable

import click

from dfq.cli.indexes import open_index, takes_index
from dfq.cli.options import command as dfq_command
from dfq.cli.output import json_line

_LOT = 1000


@dfq_command(
    "dfq index scan shops",
    "dfq index scan shops --format csv",
    "dfq index scan shops --shard 5e --deleted",
)
@takes_index
@click.option("--shard", metavar="HH", help="Only this shard: two hex digits.")
@click.option("--deleted", is_flag=True, help="The marks of deleted records, too.")
@click.option(
    "--format", "kind", type=click.Choice(("jsonl", "csv", "usv")), default="jsonl", help="How."
)
def command(index: str, shard: str | None, deleted: bool, kind: str, as_json: bool) -> None:
    """Print all records, also those that wait to be compiled.

    As JSON lines, or as CSV or USV with a header; `dfq index put` reads all three.
    """
    from dfq.cli.progress import progress

    if shard is not None and not re.fullmatch("[0-9a-f]{2}", shard):
        raise click.BadParameter("a shard is two hex digits, as 5e", param_hint="--shard")
    kind = "jsonl" if as_json else kind
    with open_index(index) as opened:
        records = opened.scan(shard=shard, deleted=deleted)
        silent = sys.stdout.isatty()
        write = _writer(kind, opened.descriptor.columns)
        with progress("scanning", None, silent=silent, unit="records") as bar:
            count = 0
            for count, record in enumerate(records, 1):
                write(record)
                if count % _LOT == 0:
                    bar.update(count)
            bar.update(count)


def _writer(kind: str, columns: tuple[str, ...]) -> Callable[[dict[str, str]], None]:
    """What prints a record; a header is printed at once."""
    if kind == "jsonl":
        return lambda record: json_line(dict(record))
    if kind == "csv":
        from dfq.cli.usv_tables import csv_writer

        writer = csv_writer(sys.stdout.write)
        writer.writerow(columns)
        return lambda record: _none(writer.writerow(record.values()))
    from dfq import _core

    click.echo(_core.join_usv([list(columns)]), nl=False)
    return lambda record: click.echo(_core.join_usv([list(record.values())]), nl=False)


def _none(_value: object) -> None:
    """Nothing, whatever was said."""
