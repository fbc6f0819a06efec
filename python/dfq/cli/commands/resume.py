"""`dfq resume`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dfq.cli.options import command as dfq_command
from dfq.cli.options import takes_queue
from dfq.cli.output import json_line, line

if TYPE_CHECKING:
    from dfq.queue import Queue


@dfq_command("dfq resume jobs")
@takes_queue()
def command(queue: Queue, as_json: bool) -> None:
    """Hand out tasks again.

    Undoes `dfq pause`; waiting workers wake up.
    """
    queue.resume()
    if as_json:
        json_line({"queue": queue.url, "paused": False})
    else:
        line(f"resumed {queue.url}")
