"""One verb on many tasks: each is tried, each failure is told, the first decides the exit code."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dfq.cli.output import explain, json_line, line
from dfq.errors import DfqError, QueueUnavailable


def each(ids: Iterable[str], verb: Callable[[str], None], done: str, *, as_json: bool) -> int:
    """Apply ``verb`` to every id; the exit code."""
    exit_code = 0
    for task_id in ids:
        try:
            verb(task_id)
        except QueueUnavailable:
            # The next one would fail for the same reason.
            raise
        except DfqError as error:
            exit_code = exit_code or error.exit_code
            explain(error)
            if as_json:
                json_line({"id": task_id, "done": False, "error": str(error)})
            continue
        if as_json:
            json_line({"id": task_id, "done": True, "error": None})
        else:
            line(f"{done} {task_id}")
    return exit_code
