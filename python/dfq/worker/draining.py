"""What is left to do: how a draining worker knows that it may end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dfq.queue import PaidByRequest, Queue
from dfq.record import EVERYTHING, Filter, Record, State, Stats


@dataclass(frozen=True)
class Remaining:
    """Unfinished tasks: those that can still run, and the ids of those that can't."""

    runnable: int
    stuck: tuple[str, ...]


def estimate(queue: Queue) -> Remaining:
    """How much there may be to do, of any kind: one count, for a progress bar's first look."""
    if isinstance(queue, PaidByRequest):
        return Remaining(runnable=queue.count_unfinished(), stuck=())
    counts = queue.stats()
    return Remaining(runnable=counts.pending - counts.stuck, stuck=())


def pending_stats(queue: Queue) -> Stats:
    """Count what is pending, as cheaply as the queue can."""
    return queue.pending_stats() if isinstance(queue, PaidByRequest) else queue.stats()


def remaining(queue: Queue, wanted: Filter) -> Remaining:
    """Count the unfinished tasks that ``wanted`` lets through.

    A task is stuck when a dependency failed or is unknown, or is itself stuck. A task that
    becomes ready meanwhile may be missed: only if a claim after this finds nothing, a count
    of 0 is the end. One that moves while it is counted may count twice.
    """
    counts = pending_stats(queue)
    # Of all names: a task can wait for one that another kind of worker will do.
    blocked = {r.task.id: r for r in queue.list("blocked")} if counts.blocked else {}
    stuck = _stuck(blocked)
    ours = [task_id for task_id, record in blocked.items() if wanted.matches(record.task)]
    if wanted == EVERYTHING:
        # One that is blocked no longer has moved on, and is still to be done.
        runnable = counts.pending - counts.blocked + max(0, counts.blocked - len(stuck))
    else:
        runnable = sum(1 for task_id in ours if task_id not in stuck)
        runnable += sum(1 for state in _reachable(counts) for _ in queue.list(state, filter=wanted))
    return Remaining(runnable, tuple(sorted(task_id for task_id in ours if task_id in stuck)))


def _reachable(counts: Stats) -> Iterator[State]:
    """The states in which tasks are, or may be by now, in the order in which they move on.

    Each list reads every task there is, so what nobody can have come to is left out.
    """
    reachable = counts.blocked > 0
    states: tuple[State, ...] = ("leased", "delayed", "ready")
    for state in states:
        reachable = reachable or getattr(counts, state) > 0
        if reachable:
            yield state


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
