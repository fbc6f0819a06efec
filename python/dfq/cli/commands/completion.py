"""`dfq completion`."""

from __future__ import annotations

import click

from dfq.cli.options import command as dfq_command

SHELLS = ("bash", "zsh", "fish")
_WHERE = {
    "bash": '~/.bashrc: eval "$(dfq completion bash)"',
    "zsh": '~/.zshrc: eval "$(dfq completion zsh)"',
    "fish": "~/.config/fish/config.fish: dfq completion fish | source",
}


@dfq_command('eval "$(dfq completion bash)"', "dfq completion zsh > _dfq")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    Put one line into the shell's start file, and commands and options complete with Tab.
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(f"# Put this into {_WHERE[shell]}")
    click.echo(kind(ctx.find_root().command, {}, "dfq", "_DFQ_COMPLETE").source())
