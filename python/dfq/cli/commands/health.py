"""`dfq health`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dfq.cli.options import DURATION, debug_option, json_option
from dfq.cli.options import command as dfq_command
from dfq.cli.output import duration, json_line, line

if TYPE_CHECKING:
    from dfq.worker.health import Health


@dfq_command(
    "dfq health worker.health",
    "dfq health worker.health --max-age 5m --json",
)
@click.argument("file", type=click.Path())
@click.option(
    "--max-age",
    type=DURATION,
    default=90.0,
    show_default="90s",
    help="A worker that gave no sign for longer is not alive.",
)
@json_option
@debug_option
@click.pass_context
def command(ctx: click.Context, file: str, max_age: float, as_json: bool) -> None:
    """Say when a worker last polled.

    FILE is what the worker was given as --health. Ends with 0 if the worker is alive, with 1
    if not: made for systemd, Docker and cron.
    """
    from dfq.worker.health import check

    health = check(file, max_age)
    if as_json:
        json_line({"alive": health.alive, "message": health.message, "workers": health.workers})
    else:
        _tell(health)
    ctx.exit(0 if health.alive else 1)


def _tell(health: Health) -> None:
    line(health.message)
    for worker in health.workers:
        line(f"  {worker.get('worker_id', 'worker')}: {_last_poll(worker)}")


def _last_poll(worker: dict[str, Any]) -> str:
    polled, alive = worker.get("last_poll_boot"), worker.get("alive_boot")
    age = worker.get("age_seconds", 0.0)
    if not isinstance(polled, int | float) or not isinstance(alive, int | float):
        return f"has not polled yet, gave a sign {duration(age)} ago"
    return f"last polled {duration(alive - polled + age)} ago, gave a sign {duration(age)} ago"
