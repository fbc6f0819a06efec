"""What is left to do: how a draining worker knows that it may end."""

from __future__ import annotations

from dataclasses import dataclass

from dfq.queue import Queue
from dfq.record import EVERYTHING, Filter, Record, State


@dataclass(frozen=True)
class Remaining:
    """Unfinished tasks: those that can still run, and the ids of those that can't."""

    runnable: int
    stuck: tuple[str, ...]


def estimate(queue: Queue) -> Remaining:
    """How much there may be to do, of any kind: one count, for a progress bar's first look."""
    counts = queue.stats()
    return Remaining(runnable=counts.pending - counts.stuck, stuck=())


def remaining(queue: Queue, wanted: Filter) -> Remaining:
    """Count the unfinished tasks that ``wanted`` lets through.

    A task is stuck when a dependency failed or is unknown, or is itself stuck.
    """
    counts = queue.stats()
    # Listing reads every task there is, so only what the count says is there is listed.
    states: tuple[State, ...] = ("ready", "delayed", "leased")
    here = [state for state in states if getattr(counts, state)]
    if wanted == EVERYTHING:
        runnable = counts.ready + counts.delayed + counts.leased
    else:
        runnable = sum(1 for state in here for _ in queue.list(state, filter=wanted))
    if not counts.blocked:
        return Remaining(runnable, ())
    # Of all names: a task can wait for one that another kind of worker will do.
    blocked = {record.task.id: record for record in queue.list("blocked")}
    stuck = _stuck(blocked)
    ours = [task_id for task_id, record in blocked.items() if wanted.matches(record.task)]
    return Remaining(
        runnable=runnable + sum(1 for task_id in ours if task_id not in stuck),
        stuck=tuple(sorted(task_id for task_id in ours if task_id in stuck)),
    )


def _stuck(blocked: dict[str, Record]) -> set[str]:
    waiting_for: dict[str, list[str]] = {}
    found: list[str] = []
    for task_id, record in blocked.items():
        for dependency, state in record.blocked_by.items():
            waiting_for.setdefault(dependency, []).append(task_id)
            if state in ("failed", "unknown"):
                found.append(task_id)
    stuck: set[str] = set()
    while found:
        task_id = found.pop()
        if task_id not in stuck:
            stuck.add(task_id)
            found.extend(waiting_for.get(task_id, ()))
    return stuck
