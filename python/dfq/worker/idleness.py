"""Why a worker has nothing to do although there are tasks: said once, to spare a long search."""

from __future__ import annotations

from dfq.queue import Queue
from dfq.record import Filter
from dfq.worker.draining import pending_stats


def why_idle(queue: Queue, wanted: Filter) -> str | None:
    """What keeps ready tasks from this worker, or None if there are none or it takes them."""
    counts = pending_stats(queue)
    if counts.paused:
        from shlex import quote  # the URL of a bucket has an & in it

        resume = f"dfq resume {quote(queue.url)}"
        return f"the queue is paused, so nothing is handed out; `{resume}` ends that"
    if not counts.ready:
        return None
    record = next(iter(queue.list("ready", limit=1)), None)
    if record is None or wanted.matches(record.task):
        return None
    task = record.task
    takes = ", ".join(repr(name) if name else "no name" for name in wanted.names or ())
    which = f"its name is {task.name!r}" if task.name else "it has no name"
    if wanted.names is not None and (task.name or "") not in wanted.names:
        return (
            f"{counts.ready} tasks are ready, but not for this worker: of {task.id}, {which}; "
            f"there are handlers for {takes}"
        )
    return f"{counts.ready} tasks are ready, but {task.id} is not among those asked for"
