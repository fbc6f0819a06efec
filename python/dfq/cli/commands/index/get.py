"""`dfq index get`."""

from __future__ import annotations

import click

from dfq.cli.indexes import open_index, takes_index
from dfq.cli.options import command as dfq_command
from dfq.cli.output import complain, json_line, printable, styled

NO_RECORD = 66


@dfq_command("dfq index get shops example.com", "dfq index get shops example.com --json")
@takes_index
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
@click.option("--deleted", is_flag=True, help="Show the mark of a deleted record, too.")
@click.pass_context
def command(
    ctx: click.Context, index: str, keys: tuple[str, ...], deleted: bool, as_json: bool
) -> None:
    """Show the newest record of a key, also before it was compiled.

    Ends with exit code 66 if there is none.
    """
    missing = 0
    with open_index(index) as opened:
        for key in keys:
            record = opened.get(key, deleted=deleted)
            if record is None:
                missing += 1
                complain(f"no record {key!r} in {opened.url}")
            elif as_json:
                json_line(dict(record))
            else:
                _show(record)
    ctx.exit(NO_RECORD if missing else 0)


def _show(record: dict[str, str]) -> None:
    width = max(map(len, record))
    for name, text in record.items():
        click.echo(f"{styled(name.ljust(width), bold=True)}  {printable(text)}")
