"""`dfq requeue`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dfq.cli.many import each
from dfq.cli.options import chosen, filter_options, takes_queue_and_ids
from dfq.cli.options import command as dfq_command

if TYPE_CHECKING:
    from dfq.queue import Queue


@dfq_command(
    "dfq requeue jobs invoice-17",
    "dfq requeue jobs --all --project acme",
)
@takes_queue_and_ids
@click.option("--all", "everything", is_flag=True, help="Every failed task that is chosen.")
@filter_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    queue: Queue,
    ids: list[str],
    as_json: bool,
    everything: bool,
    **filters: Any,
) -> None:
    """Give failed tasks their attempts back.

    They are ready again at once; their history and their fence stay.
    """
    choice = chosen(**filters)
    if everything == bool(ids):
        raise click.UsageError("give ids or --all" + (", not both" if ids else ""))
    if ids and any(filters.values()):
        raise click.UsageError("the options that choose tasks go with --all, not with ids")
    targets = ids or [record.task.id for record in queue.list("failed", filter=choice)]
    ctx.exit(each(targets, queue.requeue, "requeued", as_json=as_json))
