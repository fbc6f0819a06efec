"""The command ``dfq`` itself: finds commands, and turns errors into messages and exit codes."""

from __future__ import annotations

import sys
from importlib import import_module
from io import TextIOWrapper
from typing import Any

import click

from dfq.cli.catalogue import EXIT_CODES, SECTIONS, SUMMARIES
from dfq.cli.output import complain, explain
from dfq.errors import DfqError

INTERRUPTED = 130
BROKEN_PIPE = 141
BUG = 70
IO_ERROR = 74


class PipeClosed(Exception):
    """Whoever read our output went away."""


class Dfq(click.Group):
    """A group that imports a command's module only when the command is used."""

    #: Whether to show tracebacks; set by ``--debug`` for one run.
    debug = False

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
        found = import_module(f"dfq.cli.commands.{cmd_name}").command
        assert isinstance(found, click.Command)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command the arguments name; an unknown name gets the nearest known one."""
        if args and args[0] not in SUMMARIES and not args[0].startswith("-"):
            from dfq.policy import nearest

            raise click.UsageError(f"no command {args[0]!r}; {nearest(args[0], list(SUMMARIES))}")
        return super().resolve_command(ctx, args)

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        formatter: click.HelpFormatter,
    ) -> None:
        """List the commands by what they are for, then the exit codes."""
        width = max(map(len, SUMMARIES))
        for section, commands in SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl([(name.ljust(width), text) for name, text in commands.items()])
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code).rjust(3), text) for code, text in EXIT_CODES])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. Click would answer a closed pipe itself, as any failure."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise PipeClosed from error

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run and exit with the code of the outcome."""
        type(self).debug = False
        extra["standalone_mode"] = False
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper):
                # What an old terminal's encoding lacks is written out, not a reason to fail.
                stream.reconfigure(errors="backslashreplace")
        sys.exit(self._run(*args, **extra))

    def _run(self, *args: Any, **extra: Any) -> int:
        try:
            outcome = super().main(*args, **extra)
            # A closed pipe shows when the buffer is written out; here it can still be caught.
            sys.stdout.flush()
        except click.ClickException as error:
            error.show()
            return error.exit_code
        except (click.Abort, KeyboardInterrupt):
            return INTERRUPTED
        except (PipeClosed, BrokenPipeError):
            _silence_stdout()
            return BROKEN_PIPE
        except DfqError as error:
            if self.debug:
                raise
            explain(error)
            return error.exit_code
        except OSError as error:
            if self.debug:
                raise
            complain(str(error))
            return IO_ERROR
        except Exception as error:
            if self.debug:
                raise
            explain_bug(error)
            return BUG
        return outcome if isinstance(outcome, int) else 0


def explain_bug(error: Exception) -> None:
    """Say that something happened that should not, and what to do about it."""
    complain(f"unexpected {type(error).__name__}: {error}")
    complain(
        "this is a bug in dfq; nothing stored was lost. Please run it again with "
        "`dfq --debug …` and report what it prints."
    )


def _silence_stdout() -> None:
    # The interpreter flushes stdout once more at exit; let that go nowhere.
    import os

    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def set_debug(_ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
    """Remember ``--debug`` for the handling of errors."""
    if value:
        Dfq.debug = True


def show_version(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
    """Print the version and end."""
    if value and not ctx.resilient_parsing:
        from dfq import __version__

        click.echo(f"dfq {__version__}")
        ctx.exit()


@click.group(
    cls=Dfq,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="`dfq COMMAND --help` explains a command, with examples.",
)
@click.option(
    "--debug", is_flag=True, expose_value=False, callback=set_debug, help="Show tracebacks."
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=show_version,
    help="Show the version.",
)
def dfq() -> None:
    """A work queue that is just a folder.

    QUEUE is a folder or a URL, and the first argument of every command. Leave it out when
    -q, DFQ_QUEUE_URL or queue_url in dfq.toml names it.

    \b
      dfq push jobs url=https://example.com
      dfq worker jobs --exec 'python3 fetch.py' --drain
      dfq stats jobs
    """
