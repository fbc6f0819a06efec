"""`dfq index rebuild`."""

from __future__ import annotations

import click

from dfq.cli.indexes import open_index, show_findings, takes_index
from dfq.cli.options import command as dfq_command
from dfq.cli.progress import progress


@dfq_command("dfq index rebuild shops", "dfq index rebuild shops --json")
@takes_index
@click.pass_context
def command(ctx: click.Context, index: str, as_json: bool) -> None:
    """Write the statistics of an index anew.

    manifest.json is made from the shards, by reading all of them. Nothing else is changed, and
    nothing but `dfq index stats` depends on it.
    """
    with (
        open_index(index) as opened,
        progress("reading shards", None, silent=as_json, unit="shards") as bar,
    ):
        findings = opened.rebuild(lambda done, total: bar.update(done, total))
    ctx.exit(show_findings(findings, as_json=as_json, nothing="manifest.json is up to date"))
