"""`dfq cancel`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dfq.cli.many import each
from dfq.cli.options import command as dfq_command
from dfq.cli.options import takes_queue_and_ids

if TYPE_CHECKING:
    from dfq.queue import Queue


@dfq_command(
    "dfq cancel jobs invoice-18",
    'dfq cancel jobs invoice-18 invoice-19 --reason "customer left"',
)
@takes_queue_and_ids
@click.option("--reason", default="", help="Kept in the task's history.")
@click.pass_context
def command(ctx: click.Context, queue: Queue, ids: list[str], as_json: bool, reason: str) -> None:
    """Move pending tasks to failed, even while they run.

    Whoever works on one loses the lease: the handler is told to stop, and its outcome is refused.
    """
    if not ids:
        raise click.UsageError("no task id given")
    ctx.exit(each(ids, lambda i: queue.cancel(i, reason), "cancelled", as_json=as_json))
