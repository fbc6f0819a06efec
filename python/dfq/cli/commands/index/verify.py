"""`dfq index verify`."""

from __future__ import annotations

import click

from dfq.cli.indexes import open_index, show_findings, takes_index
from dfq.cli.options import command as dfq_command
from dfq.cli.progress import progress


@dfq_command("dfq index verify shops", "dfq index verify shops --json")
@takes_index
@click.pass_context
def command(ctx: click.Context, index: str, as_json: bool) -> None:
    """Read every shard and look for trouble; change nothing.

    Shards that can't be read, a manifest that lies, files that are never compiled, what is in
    quarantine. Ends with exit code 1 if a shard needs you. With --json, one finding a line.
    """
    with (
        open_index(index) as opened,
        progress("verifying", None, silent=as_json, unit="shards") as bar,
    ):
        findings = opened.verify(lambda done, total: bar.update(done, total))
    ctx.exit(show_findings(findings, as_json=as_json, nothing="nothing wrong was found"))
