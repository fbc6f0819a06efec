"""`dfq worker`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dfq.cli.options import (
    chosen,
    debug_option,
    filter_options,
    queue_argument,
    queue_option,
    quiet_option,
    running_options,
)
from dfq.cli.options import command as dfq_command

if TYPE_CHECKING:
    from dfq.config import Config
    from dfq.worker import Progress
    from dfq.worker.handlers import HandlerSet


@dfq_command(
    "dfq worker jobs --handler shop.tasks:enrich --drain",
    "dfq worker jobs --handler shop.tasks --concurrency 8 --drain",
    "dfq worker jobs --exec 'wc -c' --once",
    "dfq worker jobs --exec ./convert.sh --timeout 5m --processes 2 --max-tasks 1",
)
@queue_argument
@queue_option
@running_options
@click.option("--drain", is_flag=True, help="End when nothing is left to do.")
@click.option("--once", is_flag=True, help="Work on one task, then end.")
@click.option("--max-tasks", type=int, metavar="N", help="End after so many tasks.")
@click.option("--must-exist", is_flag=True, help="Make no new queue; end with 74 if there is none.")
@filter_options
@click.option(
    "--log-json", "--json", "log_json", is_flag=True, default=None, help="Log JSON lines."
)
@quiet_option("No progress bar; the log goes on.")
@debug_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    queue: str | None,
    queue_option: str | None,
    project: str | None,
    labels: tuple[str, ...],
    min_priority: str | None,
    max_priority: str | None,
    names: tuple[str, ...],
    drain: bool,
    once: bool,
    max_tasks: int | None,
    must_exist: bool,
    worker_id: str | None,
    results_to: str | None,
    **given: Any,
) -> None:
    """Take tasks from a queue and run them.

    A handler is a Python function that gets the payload; what it returns is the result. With
    --exec the payload is on the program's stdin, DFQ_TASK_ID and DFQ_FENCE are in its
    environment, and its exit code decides: 0 done, 75 try again later, anything else failed.
    With --results-to a result is an object with the columns of an index, or a list of such; one
    that does not fit fails the attempt.

    On SIGTERM or Ctrl-C it takes no more tasks, and what runs may finish within --grace; a
    second one stops at once. While a bucket can't be reached it says so once and tries on; with
    --once or --drain it ends with 74 instead. Ends with 0 when done, 1 when the queue failed or,
    with --once, the task did, and 3 when --once found none.
    """
    from dfq.cli.locate import local_folder, only_queue, open_queue
    from dfq.config import load_config
    from dfq.worker import WorkerOptions, run

    config = _settings(load_config(), **given)
    handlers = _handlers(config)
    options = WorkerOptions(
        concurrency=config.concurrency,
        processes=config.processes,
        timeout_seconds=config.timeout_seconds,
        grace_seconds=config.grace_seconds,
        lease_seconds=config.lease_seconds,
        drain=drain,
        once=once,
        max_tasks=max_tasks,
        worker_id=worker_id,
        filter=chosen(project, labels, min_priority, max_priority, names),
        health_path=config.health_path,
        results_to=results_to,
        metrics_port=config.metrics_port,
        metrics_host=config.metrics_host,
        log_json=config.log_json,
    )
    url = _place(only_queue(queue, queue_option), must_exist)
    if drain or once or local_folder(url) is not None:
        opening = open_queue(url, create=True)
    else:
        from dfq.worker.starting import open_patiently

        # Who is to work for ever waits for a store that is down, as it would later on.
        patient = open_patiently(lambda: open_queue(url, create=True), log_json=config.log_json)
        if patient is None:
            ctx.exit(0)
        opening = patient
    with opening as opened:
        if not drain:
            ctx.exit(run(opened, handlers, options))
        with DrainBar(silent=config.quiet or config.log_json) as bar:
            exit_code = run(opened, handlers, options, bar.show if bar.visible else None)
    ctx.exit(exit_code)


def _place(url: str, must_exist: bool) -> str:
    from dfq.cli.locate import local_folder
    from dfq.engines.file_folder import is_queue
    from dfq.errors import QueueUnavailable

    folder = local_folder(url)
    if must_exist and folder is not None and not is_queue(folder):
        raise QueueUnavailable(
            f"there is no queue at {url!r}, and with --must-exist none is made; mount its disk, "
            "or make it with `dfq init`"
        )
    return url


def _settings(
    config: Config,
    *,
    handlers: tuple[str, ...],
    exec_: str | None,
    timeout: float | None,
    grace: float | None,
    lease: float | None,
    health: str | None,
    **same_name: Any,
) -> Config:
    if handlers and exec_ is not None:
        raise click.UsageError("give --handler or --exec, not both")
    if handlers or exec_ is not None:
        # What the command line says to run replaces either way of saying it.
        config = _without_handler(config)
    return config.with_options(
        handler=",".join(handlers) or None,
        exec=exec_,
        timeout_seconds=timeout,
        grace_seconds=grace,
        lease_seconds=lease,
        health_path=health,
        **same_name,
    )


def _without_handler(config: Config) -> Config:
    import dataclasses

    return dataclasses.replace(config, handler=None, exec=None)


def _handlers(config: Config) -> HandlerSet:
    from dfq import worker

    if config.handler is not None and config.exec is not None:
        raise click.UsageError("the configuration gives handler and exec; it can be only one")
    if config.handler is not None:
        from dfq.worker.handlers import load_handlers

        return load_handlers(*(target.strip() for target in config.handler.split(",")))
    if config.exec is not None:
        return worker.command(config.exec)
    raise click.UsageError("nothing to run: give --handler pkg.mod:function or --exec 'command'")


class DrainBar:
    """A progress bar of a draining worker; it grows when tasks are pushed meanwhile."""

    def __init__(self, *, silent: bool) -> None:
        from dfq.cli.progress import progress

        self._bar = progress("draining", None, silent=silent)

    @property
    def visible(self) -> bool:
        """Whether there is anything to draw on."""
        from dfq.cli.progress import SilentBar

        return not isinstance(self._bar, SilentBar)

    def show(self, now: Progress) -> None:
        """Draw how far the worker is."""
        done = now.completed + now.failed
        total = None if now.remaining is None else done + now.remaining
        notes = [f"{now.failed} failed"] if now.failed else []
        notes += [f"{now.retried} tried again"] if now.retried else []
        notes += [f"{now.stuck} stuck"] if now.stuck else []
        self._bar.update(done, total, ", ".join(notes))

    def __enter__(self) -> DrainBar:
        self._bar.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._bar.__exit__(None, None, None)
