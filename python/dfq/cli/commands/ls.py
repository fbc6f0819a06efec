"""`dfq ls`."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from dfq.cli.describe import record_json
from dfq.cli.options import chosen, filter_options, takes_queue
from dfq.cli.options import command as dfq_command
from dfq.cli.output import duration, json_line, line, note, table
from dfq.record import STATES

if TYPE_CHECKING:
    from dfq.queue import Queue
    from dfq.record import Record, State

#: Rows of a table, unless --limit says otherwise.
TABLE_ROWS = 100


@dfq_command(
    "dfq ls jobs --state failed",
    "dfq ls jobs --project acme --label urgent --limit 20",
    "dfq ls jobs --state failed --ids | xargs dfq requeue jobs --",
    "dfq ls jobs --json",
)
@takes_queue()
@click.option("--state", type=click.Choice(STATES), help="Only tasks in this state.")
@filter_options
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    metavar="N",
    help=f"At most so many; 0 is all. A table has {TABLE_ROWS}, --json and --ids have all.",
)
@click.option("--ids", "ids_only", is_flag=True, help="Print nothing but ids.")
def command(
    queue: Queue,
    as_json: bool,
    state: State | None,
    limit: int | None,
    ids_only: bool,
    **filters: Any,
) -> None:
    """List tasks.

    In no particular order. With --json, one object a line.
    """
    if limit is None:
        limit = 0 if as_json or ids_only else TABLE_ROWS
    records = queue.list(state, filter=chosen(**filters), limit=limit + 1 if limit else None)
    shown = islice(records, limit or None)
    if as_json:
        for record in shown:
            json_line(record_json(record))
    elif ids_only:
        for record in shown:
            line(record.task.id)
    else:
        _print_table(list(shown), queue.clock.wall())
    if limit and next(records, None) is not None:
        note(f"there are more than these {limit}; --limit 0 lists all")


def _print_table(records: list[Record], now: float) -> None:
    if not records:
        note("no such tasks")
        return
    table(
        ("ID", "STATE", "PRIORITY", "TRIES", "AGE", "NAME", "PROJECT", "LABELS", "NOTE"),
        [
            (
                record.task.id,
                record.state,
                str(record.task.priority),
                f"{record.task.attempts}/{record.task.max_attempts}",
                duration(now - record.task.created_at),
                record.task.name or "",
                record.task.project or "",
                ",".join(record.task.labels),
                _remark(record, now),
            )
            for record in records
        ],
    )


def _remark(record: Record, now: float) -> str:
    task = record.task
    if record.state == "leased" and record.lease is not None:
        return f"held by {record.lease.worker_id}"
    if record.state == "delayed" and task.not_before is not None:
        return f"in {duration(task.not_before - now)}"
    if record.state == "blocked":
        return "waits for " + ", ".join(f"{i} ({why})" for i, why in record.blocked_by.items())
    if record.state != "completed" and task.errors:
        last = task.errors[-1]
        text = f"{last.kind}: {last.message}".split("\n", 1)[0]
        return text if len(text) <= 60 else f"{text[:59]}…"
    return ""
