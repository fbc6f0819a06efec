"""Every command of dfq, those within a group as well."""

from __future__ import annotations

import click

from dfq.cli.app import dfq as dfq_command
from dfq.cli.catalogue import SUMMARIES


def commands_of(name):
    """The commands behind one name, by the words that call them."""
    context = click.Context(dfq_command)
    found = dfq_command.get_command(context, name)
    assert found is not None
    if isinstance(found, click.Group):
        below = found.list_commands(context)
        return {f"{name} {inner}": found.get_command(context, inner) for inner in below}
    return {name: found}


EVERY_COMMAND = {words: c for name in SUMMARIES for words, c in commands_of(name).items()}
