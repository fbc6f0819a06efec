"""`dfq index delete`."""

from __future__ import annotations

import click

from dfq.cli.indexes import open_index, takes_index
from dfq.cli.options import command as dfq_command
from dfq.cli.output import counted, json_line, line


@dfq_command("dfq index delete shops example.com")
@takes_index
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
def command(index: str, keys: tuple[str, ...], as_json: bool) -> None:
    """Mark records as deleted, from now on.

    The mark is a record like any other: what is older stays away even if it comes late, what is
    newer brings the key back. The shard remembers it for as long as the index says.
    """
    with open_index(index) as opened:
        for key in keys:
            opened.delete(key)
    if as_json:
        json_line({"deleted": len(keys)})
    else:
        line(f"marked {counted(len(keys), 'record')} as deleted")
