"""The worker: takes tasks from a queue and runs them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dfq.handler import Handler
from dfq.queue import Queue
from dfq.worker.options import Progress, WorkerOptions

if TYPE_CHECKING:
    from dfq.worker.handlers import HandlerSet

__all__ = ["Progress", "WorkerOptions", "command", "functions", "load", "run"]


def load(*targets: str) -> HandlerSet:
    """The handlers named by ``pkg.mod:function`` or ``pkg.mod``; HandlerError if they can't be."""
    from dfq.worker.handlers import load_handlers

    return load_handlers(*targets)


def functions(*callables: Handler[..., Any] | Callable[..., Any]) -> HandlerSet:
    """Decorated functions, and at most one plain one, for :func:`run`."""
    from dfq.worker.handlers import handler_set

    return handler_set(*callables)


def command(line: str) -> HandlerSet:
    """Handlers that run ``line`` as a program for every task."""
    from dfq.worker.execution import command_handlers

    return command_handlers(line)


def run(
    queue: Queue,
    handlers: HandlerSet,
    options: WorkerOptions | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> int:
    """Work until told to stop; returns the exit code.

    Installs handlers for SIGTERM and SIGINT while it runs, if called from the main thread.
    0: done. 1: the queue failed, or with ``once`` the task did. 3: ``once`` and nothing there.
    130, 143: stopped at once by a second signal.
    """
    from dfq.worker.runner import run_worker

    return run_worker(queue, handlers, options or WorkerOptions(), on_progress)
