"""Starts a worker: here, or as several processes."""

from __future__ import annotations

from collections.abc import Callable

from dfq.errors import InvalidConfig
from dfq.queue import Queue
from dfq.worker.child import child_options, take_place, watch_supervisor
from dfq.worker.folder import Folder
from dfq.worker.handlers import HandlerSet
from dfq.worker.logs import LOGGER, configure
from dfq.worker.loop import EXIT_DONE, Worker
from dfq.worker.notify import Notifier, take_notifier
from dfq.worker.options import Progress, WorkerOptions


def run_worker(
    queue: Queue,
    handlers: HandlerSet,
    options: WorkerOptions,
    on_progress: Callable[[Progress], None] | None = None,
) -> int:
    """Work until told to stop; returns the exit code."""
    configure(as_json=options.log_json)
    child, notifier = take_place(), take_notifier()
    if child is not None:
        share = child_options(options, child)
        if share is None:
            return EXIT_DONE
        worker = Worker(queue, handlers, share, notifier=notifier)
        watch_supervisor(child, worker.stop)
        return worker.run()
    if Folder(queue.url).is_new():
        # A mistyped path looks like a queue in which there is nothing to do.
        LOGGER.info("there was no queue yet: making a new queue at %s", queue.url)
    if options.processes > 1:
        return _supervise(queue, handlers, options, on_progress, notifier)
    return Worker(queue, handlers, options, on_progress, notifier=notifier).run()


def _supervise(
    queue: Queue,
    handlers: HandlerSet,
    options: WorkerOptions,
    on_progress: Callable[[Progress], None] | None,
    notifier: Notifier,
) -> int:
    if options.once:
        raise InvalidConfig("once works on a single task; leave processes out")
    if queue.url.startswith("memory:"):
        raise InvalidConfig("a queue in memory can't be shared by processes; use concurrency")
    # A mistake is told here, once, and not by every child.
    wanted = handlers.narrow(options.filter)
    if options.results_to is not None:
        from dfq.worker.results import Results

        Results(options.results_to).close()
    from dfq.worker.health import numbered
    from dfq.worker.processes import Supervisor, own_command

    if options.metrics_port is not None:
        from dfq.worker.metrics import ensure_installed

        ensure_installed()
    if options.health_path is not None:
        for left_behind in numbered(options.health_path):
            left_behind.unlink(missing_ok=True)
    supervisor = Supervisor(
        own_command(),
        options.processes,
        queue.clock,
        queue.chance,
        # Whoever draws progress wants no other hand on the terminal.
        pass_on_stderr=on_progress is not None,
        # A handler may end its process, and with 0 at that.
        endless=not options.drain and options.max_tasks is None,
        notifier=notifier,
    )
    if on_progress is None:
        return supervisor.run()
    from dfq.worker.overview import Overview

    with Overview(queue, wanted, on_progress):
        return supervisor.run()
