"""Every command of dfq, those within a group as well."""

from __future__ import annotations

import click

from dfq.cli.app import dfq as dfq_command
from dfq.cli.catalogue import SUMMARIES


def commands_of(name):
    """The commands behind one name, by the words that call them."""
    found = dfq_command.get_command(click.Context(dfq_command), name)
    assert found is not None
    if isinstance(found, click.Group):
        return {f"{name} {inner}": command for inner, command in found.commands.items()}
    return {name: found}


EVERY_COMMAND = {words: c for name in SUMMARIES for words, c in commands_of(name).items()}
