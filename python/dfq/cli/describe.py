"""Records, leases and statistics as JSON values for ``--json``. Times are seconds since 1970."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from dfq.payload import JSON

if TYPE_CHECKING:
    from dfq.lease import Lease
    from dfq.record import Record, Stats
    from dfq.task import Task


def task_json(task: Task) -> dict[str, JSON]:
    """The task and its envelope."""
    return dataclasses.asdict(task)


def lease_json(lease: Lease) -> dict[str, JSON]:
    """The lease, its task by id only."""
    names = [field.name for field in dataclasses.fields(lease) if field.name != "task"]
    return {"task_id": lease.task.id, **{name: getattr(lease, name) for name in names}}


def record_json(record: Record) -> dict[str, JSON]:
    """Everything about a task, in one flat object."""
    task = task_json(record.task)
    return {
        "id": task.pop("id"),
        "state": record.state,
        **task,
        "lease": None if record.lease is None else lease_json(record.lease),
        "result": record.result,
        "finished_at": record.finished_at,
        "blocked_by": dict(record.blocked_by),
    }


def stats_json(stats: Stats) -> dict[str, JSON]:
    """All counts."""
    return {**dataclasses.asdict(stats), "pending": stats.pending}
