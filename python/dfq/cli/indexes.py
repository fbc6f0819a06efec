"""What the commands on indexes have in common."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import click

from dfq.cli.options import complete_queue, debug_option, json_option
from dfq.cli.output import json_line, printable, styled

if TYPE_CHECKING:
    from dfq.compiler.index import Index
    from dfq.record import Finding

_COLOURS = {"ok": "green", "warning": "yellow", "error": "red"}

index_argument = click.argument("index", shell_complete=complete_queue)


def takes_index(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the argument INDEX and the usual options; the function gets its URL."""

    @functools.wraps(function)
    def with_index(*args: Any, as_json: bool, **rest: Any) -> Any:
        # `dfq index --json stats …` is as good as `dfq index stats … --json`.
        everywhere = click.get_current_context().obj is True
        return function(*args, as_json=as_json or everywhere, **rest)

    wrapped: Callable[..., Any] = with_index
    for option in (debug_option, json_option, index_argument):
        wrapped = option(wrapped)
    return wrapped


def open_index(url: str) -> Index:
    """The index at a path or a URL."""
    import dfq

    return dfq.Index(url)


def show_findings(findings: Iterable[Finding], *, as_json: bool, nothing: str) -> int:
    """Print what was found; the exit code."""
    import dataclasses

    levels = set()
    for finding in findings:
        levels.add(finding.level)
        if as_json:
            json_line(dataclasses.asdict(finding))
            continue
        level = styled(f"{finding.level:<8}", fg=_COLOURS[finding.level])
        click.echo(f"{level} {printable(finding.subject)}: {printable(finding.message)}")
        if finding.advice:
            click.echo(f"{'':<8} {printable(finding.advice)}")
    if not levels and not as_json:
        click.echo(nothing)
    return 1 if "error" in levels else 0
