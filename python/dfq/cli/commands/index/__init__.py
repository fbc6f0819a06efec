"""`dfq index`: a group whose commands are imported when they are used."""

from __future__ import annotations

from importlib import import_module

import click

from dfq.cli.options import Group, debug_option, json_option

SUMMARIES = {
    "create": "Make an index, or add columns to one.",
    "put": "Put records into an index.",
    "get": "Show the newest record of a key.",
    "delete": "Mark records as deleted.",
    "scan": "Print all records.",
    "compile": "Fold what waits into the shards.",
    "stats": "Count what an index holds.",
    "verify": "Read every shard and look for trouble; change nothing.",
    "rebuild": "Write the statistics of an index anew.",
}


class IndexGroup(Group):
    """Finds the commands of `dfq index`."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """The names of all commands."""
        return list(SUMMARIES)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        cmd_name: str,
    ) -> click.Command | None:
        """Import the command, if there is one of this name."""
        if cmd_name not in SUMMARIES:
            return None
        if cmd_name == "compile":
            found = import_module("dfq.cli.commands.compile").command
        else:
            found = import_module(f"dfq.cli.commands.index.{cmd_name}").command
        assert isinstance(found, click.Command)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command the arguments name; an unknown name gets the nearest known one."""
        if args and args[0] not in SUMMARIES and not args[0].startswith("-"):
            from dfq.policy import nearest

            raise click.UsageError(
                f"no command {args[0]!r} in dfq index; {nearest(args[0], list(SUMMARIES))}"
            )
        return super().resolve_command(ctx, args)

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        formatter: click.HelpFormatter,
    ) -> None:
        """List the commands."""
        with formatter.section("Commands"):
            formatter.write_dl(list(SUMMARIES.items()))


@click.command(
    cls=IndexGroup,
    examples=(
        "dfq index create places domain city --key-rule domain",
        "dfq index put shops domain=example.com city=Bern",
        "dfq index get shops example.com",
        "dfq index compile shops",
    ),
)
@json_option
@debug_option
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """Keep records under keys, as sorted files.

    An INDEX is a folder or a URL: s3://bucket/prefix. Writers put small USV files into its inbox,
    `dfq compile` folds them into 256 shards, on any node and as many at once as you like. The
    newest record of a key counts. DuckDB and polars read the shards.
    """
    ctx.obj = as_json
