"""`dfq demo`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dfq.cli.options import command as dfq_command
from dfq.cli.options import debug_option, json_option, quiet_option
from dfq.cli.output import counted, json_line, line

if TYPE_CHECKING:
    from dfq.handler import Context
    from dfq.queue import Queue

#: Nobody wants to wait long for a demonstration.
POLICY = {"max_attempts": 2, "retry": {"base_seconds": 0.05, "cap_seconds": 0.1}}


@dfq_command("dfq demo", "dfq demo --tasks 10 --json")
@click.argument("url", required=False, metavar="[URL]")
@click.option(
    "--tasks",
    type=click.IntRange(1, 100_000),
    default=40,
    show_default=True,
    help="How many tasks to push.",
)
@json_option
@quiet_option("No progress bar.")
@debug_option
@click.pass_context
def command(
    ctx: click.Context, url: str | None, tasks: int, as_json: bool, quiet: bool | None
) -> None:
    """See a queue at work, in a folder of its own.

    Pushes tasks into a new temporary folder and runs a worker until all is done: most work at
    once, some at the second try, one never, and one waits for another. Then shows what happened
    and which commands to try on it. Nothing else on this machine is touched.

    With a URL such as s3://my-bucket/tmp the queue is made there, under a prefix of its own.
    """
    import dfq
    from dfq.policy import Policy

    where, rest = _new_queue(url)
    policy = None if url is None else Policy.from_json(POLICY)
    with dfq.open(where, policy=policy) as queue:
        _push(queue, tasks)
        if not as_json:
            kind = "folder" if url is None else "prefix in a bucket"
            line(f"A queue is a {kind}; this one is {where}")
            line(f"Pushed {counted(tasks + 3, 'task')}, now a worker runs them:")
        exit_code = _work(queue, silent=as_json or bool(quiet))
        if as_json:
            from dfq.cli.describe import stats_json

            json_line({"queue": where, **stats_json(queue.stats())})
        else:
            _tell(queue, where, rest)
    ctx.exit(exit_code)


def _new_queue(url: str | None) -> tuple[str, str]:
    """A queue of the demo's own, and the command that takes it away again."""
    if url is not None:
        from dfq.ambient import SYSTEM_CHANCE, SYSTEM_CLOCK, new_id

        path, mark, parameters = url.partition("?")
        where = f"{path.rstrip('/')}/dfq-demo-{new_id(SYSTEM_CLOCK, SYSTEM_CHANCE)}"
        return f"{where}{mark}{parameters}", f"dfq purge '{where}{mark}{parameters}' --yes"
    import tempfile
    from pathlib import Path

    from dfq.cli.policy_file import write_policy
    from dfq.cli.policy_places import InFolder

    folder = tempfile.mkdtemp(prefix="dfq-demo-")
    write_policy(InFolder(Path(folder, "jobs")), POLICY, None, update=False)
    return f"{folder}/jobs", f"rm -r {folder}"


def _push(queue: Queue, count: int) -> None:
    cities = ("Accra", "Bern", "Cusco", "Dhaka", "Esbjerg", "Faro", "Gwangju", "Hobart")
    queue.push_many(
        queue.new_task(
            {"city": cities[number % len(cities)], "number": number, "stumbles": number % 8 == 5},
            project="weather",
        )
        for number in range(count)
    )
    queue.push({"city": "Atlantis"}, id="lost-city", project="weather", labels=["doubtful"])
    queue.push({"city": "Rome"}, id="rome", priority="high", project="weather")
    queue.push({"report": True}, id="report", depends_on=["rome"], project="reports")


def visit(context: Context, payload: dict[str, object]) -> dict[str, object]:
    """The demo's handler: some tasks stumble at the first try, one can never work."""
    context.cancelled.wait(0.02)
    if payload.get("city") == "Atlantis":
        raise LookupError("there is no such city")
    if payload.get("stumbles") and context.attempt == 1:
        raise ConnectionError("the line was down; a second try will do")
    return {"done": True, "attempt": context.attempt}


def _work(queue: Queue, *, silent: bool) -> int:
    import logging

    from dfq.cli.commands.worker import DrainBar
    from dfq.worker import WorkerOptions, load, run

    # The story is told at the end; a log line for each stumble would only bury it.
    logging.getLogger("dfq").setLevel(logging.CRITICAL)
    options = WorkerOptions(concurrency=4, drain=True, worker_id="demo")
    with DrainBar(silent=silent) as bar:
        return run(queue, load(f"{__name__}:visit"), options, bar.show)


def _tell(queue: Queue, where: str, removal: str) -> None:
    stats = queue.stats()
    line()
    line(f"{counted(stats.completed, 'task')} completed, {stats.failed} failed.")
    again = sum(1 for record in queue.list("completed") if record.task.errors)
    line(f"  {again} of the completed failed once and were tried again.")
    for record in queue.list("failed"):
        line(f"  {record.task.id} failed for good:")
        for error in record.task.errors:
            line(f"    attempt {error.attempt}: {error.message.splitlines()[0]}")
    line("  report ran only when rome, on which it depends, was completed.")
    line()
    line("It is all there, to be looked at. Try:")
    path = f"'{where}'" if "?" in where else where
    for text in (
        f"dfq stats {path}",
        f"dfq ls {path} --state failed",
        f"dfq show {path} lost-city",
        f"dfq requeue {path} lost-city",
        f"dfq push {path} city=Lima",
        f"dfq worker {path} --exec cat --drain",
        removal,
    ):
        line(f"  {text}")
