"""`dfq purge`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from dfq.cli.options import DURATION, takes_queue
from dfq.cli.options import command as dfq_command
from dfq.cli.output import counted, duration, json_line, line, printable
from dfq.record import STATES

if TYPE_CHECKING:
    from dfq.queue import Queue
    from dfq.record import State


@dfq_command(
    "dfq purge jobs --state completed --older-than 30d --yes",
    "dfq purge jobs --yes",
)
@takes_queue()
@click.option("--state", type=click.Choice(STATES), help="Only tasks in this state.")
@click.option("--older-than", type=DURATION, help="Only tasks older than this: 12h, 30d.")
@click.option("--yes", is_flag=True, help="Don't ask.")
def command(
    queue: Queue, as_json: bool, state: State | None, older_than: float | None, yes: bool
) -> None:
    """Delete tasks for good.

    All of them, or those in a state. One that is being worked on is left alone, unless
    `--state leased` asks for just that. Asks before it deletes, unless told --yes.
    """
    if not yes:
        _ask(queue, state, older_than)
    deleted = queue.purge(state, older_than_seconds=older_than)
    if as_json:
        json_line({"deleted": deleted})
    else:
        line(f"deleted {counted(deleted, 'task')}")


def _ask(queue: Queue, state: State | None, older_than: float | None) -> None:
    if not sys.stdin.isatty():
        raise click.UsageError("purge deletes for good; say --yes when nobody can be asked")
    stats = queue.stats()
    count = getattr(stats, state) if state else stats.pending + stats.completed + stats.failed
    tasks = counted(count, f"{state} task" if state else "task")
    if older_than is not None:
        tasks = f"those of the {tasks} that are older than {duration(older_than)}"
    click.confirm(f"Delete {tasks} in {printable(queue.url)} for good?", abort=True, err=True)
