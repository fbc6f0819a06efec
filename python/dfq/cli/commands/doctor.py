"""`dfq doctor`."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

from dfq.cli.options import command as dfq_command
from dfq.cli.options import takes_queue
from dfq.cli.output import json_line, printable, styled

if TYPE_CHECKING:
    from dfq.queue import Queue
    from dfq.record import Finding

_COLOURS = {"ok": "green", "warning": "yellow", "error": "red"}


@dfq_command("dfq doctor jobs", "dfq doctor jobs --json")
@takes_queue()
@click.pass_context
def command(ctx: click.Context, queue: Queue, as_json: bool) -> None:
    """Look for trouble in a queue; change nothing.

    Damaged files, tasks that wait for what will never come, a disk that is full. Ends with
    exit code 1 if something needs you. With --json, one finding a line.
    """
    findings = queue.doctor()
    for finding in findings:
        if as_json:
            json_line(dataclasses.asdict(finding))
        else:
            _show(finding)
    if not findings and not as_json:
        click.echo("nothing wrong was found")
    ctx.exit(1 if any(finding.level == "error" for finding in findings) else 0)


def _show(finding: Finding) -> None:
    level = styled(f"{finding.level:<8}", fg=_COLOURS[finding.level])
    click.echo(f"{level} {printable(finding.subject)}: {printable(finding.message)}")
    if finding.advice:
        click.echo(f"{'':<8} {printable(finding.advice)}")
