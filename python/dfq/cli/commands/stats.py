"""`dfq stats`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dfq.cli.cost import bill_of, cost_json, cost_lines
from dfq.cli.describe import stats_json
from dfq.cli.options import command as dfq_command
from dfq.cli.options import takes_queue
from dfq.cli.output import duration, json_line, printable, styled

if TYPE_CHECKING:
    from dfq.queue import Queue
    from dfq.record import Stats

#: What each count means, in the order of a task's life.
MEANINGS = {
    "ready": "can be taken now",
    "delayed": "wait for their time",
    "blocked": "wait for other tasks",
    "leased": "are being worked on",
    "completed": "are done",
    "failed": "gave up; see `dfq ls --state failed`",
}
#: Projects and labels shown; the largest first.
GROUPS_SHOWN = 20


@dfq_command("dfq stats jobs", "dfq stats jobs --json", "dfq stats jobs --cost")
@takes_queue()
@click.option("--cost", is_flag=True, help="What its requests cost, by kind and by task.")
def command(queue: Queue, as_json: bool, cost: bool) -> None:
    """Count the tasks of a queue.

    By state, and what is not finished by project and label as well. With --cost also the requests
    to a bucket that its processes told of, live or ended within a day, priced by the table
    [prices] of dfq.toml, and what SQS would have cost.
    """
    stats = queue.stats()
    bill = bill_of(queue) if cost else None
    if as_json:
        document = {"queue": queue.url, **stats_json(stats)}
        json_line(document | ({"cost": cost_json(bill)} if cost else {}))
        return
    for text in stats_lines(queue.url, stats) + (cost_lines(bill) if cost else []):
        click.echo(text)


def stats_lines(url: str, stats: Stats) -> list[str]:
    """The statistics as lines for people."""
    lines = [styled(url, bold=True)]
    if stats.paused:
        lines.append(styled("paused: no tasks are handed out; `dfq resume` ends it", fg="yellow"))
    for state, meaning in MEANINGS.items():
        count = getattr(stats, state)
        number = f"{count:>12,}"
        colour = "red" if state == "failed" and count else None
        lines.append(f"{styled(number, fg=colour) if colour else number} {state:<10} {meaning}")
    if stats.stuck:
        lines.append(
            styled(
                f"{stats.stuck:>12,} of the blocked are stuck: what they wait for failed "
                "or is unknown; see `dfq doctor`",
                fg="red",
            )
        )
    if stats.quarantined:
        lines.append(
            styled(f"{stats.quarantined:>12,} damaged, set aside; see `dfq doctor`", fg="red")
        )
    if stats.oldest_ready_seconds is not None:
        lines.append(f"the oldest ready task has waited {duration(stats.oldest_ready_seconds)}")
    for what, groups in (("project", stats.by_project), ("label", stats.by_label)):
        lines.extend(_group_lines(what, dict(groups)))
    return lines


def _group_lines(what: str, groups: dict[str, int]) -> list[str]:
    if not groups:
        return []
    largest = sorted(groups.items(), key=lambda item: (-item[1], item[0]))
    lines = [f"by {what}:"]
    lines += [f"{count:>12,} {printable(name)}" for name, count in largest[:GROUPS_SHOWN]]
    if len(largest) > GROUPS_SHOWN:
        lines.append(f"{'':>12} and {len(largest) - GROUPS_SHOWN:,} more")
    return lines
