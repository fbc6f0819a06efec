"""`dfq pause`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dfq.cli.options import command as dfq_command
from dfq.cli.options import takes_queue
from dfq.cli.output import json_line, line

if TYPE_CHECKING:
    from dfq.queue import Queue


@dfq_command("dfq pause jobs", 'dfq pause jobs --reason "moving the disk"')
@takes_queue()
@click.option("--reason", default="", help="Told to whoever looks.")
def command(queue: Queue, as_json: bool, reason: str) -> None:
    """Stop handing out tasks.

    For every worker of the queue, until `dfq resume`. Tasks that run now finish; tasks can
    still be pushed.
    """
    queue.pause(reason)
    if as_json:
        json_line({"queue": queue.url, "paused": True})
    else:
        line(f"paused {queue.url}; `dfq resume` hands out tasks again")
