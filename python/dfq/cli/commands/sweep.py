"""`dfq sweep`."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from dfq.cli.options import command as dfq_command
from dfq.cli.options import takes_queue
from dfq.cli.output import json_line, line

if TYPE_CHECKING:
    from dfq.queue import Queue

_WORDS = {
    "expired_leases": "leases whose worker is gone",
    "failed": "tasks that ran out of attempts or time",
    "temporary_removed": "leftovers removed",
    "quarantined": "damaged tasks set aside",
    "archived": "finished tasks put into the archive",
    "dropped": "finished tasks dropped",
}


@dfq_command("dfq sweep jobs", "dfq sweep jobs --json")
@takes_queue()
def command(queue: Queue, as_json: bool) -> None:
    """Put right what crashes left behind.

    Workers do this by themselves now and then; by hand it is only needed where none runs.
    """
    report = dataclasses.asdict(queue.sweep())
    if as_json:
        json_line(report)
        return
    if not any(report.values()):
        line("nothing to put right")
    for key, count in report.items():
        if count:
            line(f"{count:>12,} {_WORDS.get(key, key)}")
