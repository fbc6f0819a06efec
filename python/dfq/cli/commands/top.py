"""`dfq top`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dfq.cli.options import DURATION, takes_queue
from dfq.cli.options import command as dfq_command

if TYPE_CHECKING:
    from dfq.cli.live import Frame
    from dfq.queue import Queue


@dfq_command("dfq top jobs --count 1", "dfq top jobs --json --count 2 --interval 0.1")
@takes_queue()
@click.option("--interval", type=DURATION, default=1.0, show_default="1s", help="Between looks.")
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="End after so many looks.")
def command(queue: Queue, as_json: bool, interval: float, count: int | None) -> None:
    """Watch a queue live.

    Counts by state, tasks finished per second, and who holds what for how long. The key q or
    Ctrl-C ends it. With --json, one look a line.
    """
    from dfq.cli.keyboard import keys
    from dfq.cli.live import PlainScreen, look, screen

    frame = None
    looks = 0
    with PlainScreen(redraw=False) if as_json else screen() as drawn, keys() as wait_for_key:
        while True:
            frame = look(queue, frame)
            looks += 1
            if as_json:
                _print_json(frame)
            else:
                drawn.draw(frame)
            if looks == count or wait_for_key(max(interval, 0.05)) in ("q", "Q", "\x03"):
                return


def _print_json(frame: Frame) -> None:
    import sys

    from dfq.cli.describe import lease_json, stats_json
    from dfq.cli.output import json_line

    json_line(
        {
            "queue": frame.url,
            **stats_json(frame.stats),
            "finished_per_second": frame.rate,
            "leases": [lease_json(lease) for lease in frame.leases],
        }
    )
    sys.stdout.flush()
