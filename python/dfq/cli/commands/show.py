"""`dfq show`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dfq.cli.describe import record_json
from dfq.cli.options import command as dfq_command
from dfq.cli.options import takes_queue_and_ids
from dfq.cli.output import duration, json_line, moment, pretty_json, printable, styled
from dfq.errors import TaskNotFound

if TYPE_CHECKING:
    from dfq.queue import Queue
    from dfq.record import Record


@dfq_command("dfq show jobs invoice-17", "dfq show jobs invoice-17 --json")
@takes_queue_and_ids
def command(queue: Queue, ids: list[str], as_json: bool) -> None:
    """Show everything about one task.

    Payload, envelope, who holds it, what went wrong at each delivery, and the result.
    """
    if len(ids) != 1:
        raise click.UsageError("show takes one task id" + (", not several" if ids else ""))
    record = queue.get(ids[0])
    if record is None:
        raise TaskNotFound(f"no task {ids[0]!r} in {queue.url}; `dfq ls` lists those there are")
    if as_json:
        json_line(record_json(record))
        return
    for text in describe(record, queue.clock.wall()):
        click.echo(text)


def describe(record: Record, now: float) -> list[str]:
    """The record as lines for people."""
    lines = [f"{styled(record.task.id, bold=True)}  {record.state}"]
    lines += [f"  {name:<15} {printable(text)}" for name, text in _envelope(record, now)]
    lines += _lease_lines(record, now)
    for number, error in enumerate(record.task.errors):
        if number == 0:
            lines.append(styled("history", bold=True))
        who = f" by {error.worker_id}" if error.worker_id else ""
        head = f"attempt {error.attempt}, fence {error.fence}{who}: {error.kind}"
        lines.append(f"  {moment(error.at, now)}  {printable(head)}")
        lines += [f"    {printable(text)}" for text in error.message.splitlines()]
    lines += [styled("payload", bold=True), _indented(pretty_json(record.task.payload))]
    if record.state == "completed":
        lines += [styled("result", bold=True), _indented(pretty_json(record.result))]
    return lines


def _envelope(record: Record, now: float) -> list[tuple[str, str]]:
    task = record.task
    rows = [
        ("name", task.name),
        ("priority", str(task.priority)),
        ("project", task.project),
        ("labels", ", ".join(task.labels)),
        ("attempts", f"{task.attempts} of {task.max_attempts}"),
        ("created", moment(task.created_at, now)),
        ("not before", None if task.not_before is None else moment(task.not_before, now)),
        ("expires", None if task.expires_at is None else moment(task.expires_at, now)),
        ("finished", None if record.finished_at is None else moment(record.finished_at, now)),
        ("depends on", ", ".join(task.depends_on)),
        ("waits for", ", ".join(f"{i} ({why})" for i, why in record.blocked_by.items())),
        ("correlation id", task.correlation_id),
    ]
    if task.retry is not None:
        base, cap = duration(task.retry.base_seconds), duration(task.retry.cap_seconds)
        rows.append(("retry", f"after up to {base}, times {task.retry.factor:g}, up to {cap}"))
    return [(name, text) for name, text in rows if text]


def _lease_lines(record: Record, now: float) -> list[str]:
    lease = record.lease
    if lease is None:
        return []
    held = record.state == "leased"
    rows = [
        ("worker", f"{lease.worker_id} (host {lease.host}, pid {lease.pid})"),
        ("fence", f"{lease.fence}, attempt {lease.attempt}"),
        ("taken", moment(lease.acquired_at, now)),
    ]
    if held:
        rows.append(("heartbeat", moment(lease.heartbeat_at, now)))
        rows.append(("expires", moment(lease.expires_at, now)))
    lines = [styled("held by" if held else "last held by", bold=True)]
    return lines + [f"  {name:<15} {printable(text)}" for name, text in rows]


def _indented(text: str) -> str:
    return "\n".join(f"  {part}" for part in text.split("\n"))
