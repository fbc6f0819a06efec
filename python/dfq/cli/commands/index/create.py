"""`dfq index create`."""

from __future__ import annotations

import click

from dfq.cli.indexes import takes_index
from dfq.cli.options import DURATION
from dfq.cli.options import command as dfq_command
from dfq.cli.output import json_line, line

_DAY_SECONDS = 86_400


@dfq_command(
    "dfq index create places domain city",
    "dfq index create places domain city population:integer --key-rule domain",
    "dfq index create shops --add phone --add opened:datetime",
)
@takes_index
@click.argument("columns", nargs=-1, metavar="[COLUMN]...")
@click.option("--key", metavar="NAME", help="The column that names a record: the first.")
@click.option(
    "--key-rule",
    type=click.Choice(("exact", "lower", "domain")),
    default="exact",
    help="How keys are made alike.",
)
@click.option(
    "--updated-at", default="updated_at", metavar="NAME", help="The column that says when."
)
@click.option(
    "--deleted-at", default="deleted_at", metavar="NAME", help="The column that marks as deleted."
)
@click.option(
    "--keep-deleted", type=DURATION, default="30d", help="How long deletions are remembered: 30d."
)
@click.option("--add", multiple=True, metavar="COLUMN", help="Add a column at the end.")
def command(
    index: str,
    columns: tuple[str, ...],
    key: str | None,
    key_rule: str,
    updated_at: str,
    deleted_at: str,
    keep_deleted: float,
    add: tuple[str, ...],
    as_json: bool,
) -> None:
    """Make an index, or add columns to one.

    A COLUMN is a name, or name:type with integer, number, boolean or datetime; what is put must
    fit the type. The columns updated_at and deleted_at are added at the end unless named. Later
    columns can only be added, at the end, with --add.

    Key rules: exact; lower, so that Example and example are one; domain, which also strips dots
    at the end and white space.
    """
    import dfq

    if bool(columns) == bool(add):
        raise click.UsageError("name the columns of a new index, or --add columns to one")
    if add:
        with dfq.Index(index) as opened:
            descriptor = opened.grow(*add)
    else:
        with dfq.Index.create(
            index,
            columns,
            key=key,
            key_rule=key_rule,
            updated_at=updated_at,
            deleted_at=deleted_at,
            keep_deleted_days=keep_deleted / _DAY_SECONDS,
        ) as opened:
            descriptor = opened.descriptor
    if as_json:
        json_line({"url": opened.url, "columns": list(descriptor.columns)})
    else:
        line(f"{opened.url} has the columns {', '.join(descriptor.columns)}")
