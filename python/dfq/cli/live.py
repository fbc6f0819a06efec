"""The live view of `dfq top`: what it shows, and drawing it with rich or without."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

import click

from dfq.cli.commands.stats import MEANINGS, stats_lines
from dfq.cli.output import duration, printable

if TYPE_CHECKING:
    from dfq.lease import Lease
    from dfq.queue import Queue
    from dfq.record import Stats

#: Holders shown; the longest at work first.
HOLDERS_SHOWN = 15


@dataclass(frozen=True)
class Frame:
    """One look at a queue."""

    url: str
    #: By the clock that never jumps.
    at: float
    #: By the wall clock, as leases have it.
    wall: float
    stats: Stats
    leases: tuple[Lease, ...]
    #: Tasks finished per second since the frame before.
    rate: float | None = None


def look(queue: Queue, before: Frame | None) -> Frame:
    """Take one look."""
    stats, at = queue.stats(), queue.clock.boot()
    rate = None
    if before is not None and at > before.at:
        finished = stats.completed + stats.failed - before.stats.completed - before.stats.failed
        # Purging and archiving take finished tasks away; that is no negative work.
        rate = max(finished, 0) / (at - before.at)
    leases = tuple(sorted(queue.leases(), key=lambda lease: lease.acquired_at))
    return Frame(queue.url, at, queue.clock.wall(), stats, leases, rate)


def frame_lines(frame: Frame) -> list[str]:
    """The frame as lines for people."""
    lines = stats_lines(frame.url, frame.stats)
    if frame.rate is not None:
        lines.append(f"{frame.rate:>12,.1f} finished per second")
    if frame.leases:
        lines.append("held:")
    for row in holder_rows(frame):
        lines.append("  ".join(f"{cell:<26}" for cell in row).rstrip())
    return lines


def holder_rows(frame: Frame) -> list[tuple[str, str, str]]:
    """Who holds what: worker, task, for how long."""
    rows = [
        (
            printable(lease.worker_id),
            printable(lease.task_id),
            f"for {duration(frame.wall - lease.acquired_at)}, attempt {lease.attempt}",
        )
        for lease in frame.leases[:HOLDERS_SHOWN]
    ]
    if len(frame.leases) > HOLDERS_SHOWN:
        rows.append((f"and {len(frame.leases) - HOLDERS_SHOWN:,} more", "", ""))
    return rows


class Screen(Protocol):
    """Something that draws one frame after another."""

    def draw(self, frame: Frame) -> None:
        """Show this frame instead of the one before."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: object) -> None: ...


def screen() -> Screen:
    """The best there is: rich on a terminal, a plain redraw, or just one frame after another."""
    if not sys.stdout.isatty():
        return PlainScreen(redraw=False)
    try:
        return RichScreen()
    except ImportError:
        return PlainScreen(redraw=True)


class PlainScreen:
    """Draws by printing."""

    def __init__(self, *, redraw: bool) -> None:
        self._redraw = redraw

    def draw(self, frame: Frame) -> None:
        """Print the frame, over the one before on a terminal."""
        if self._redraw:
            click.clear()
        for text in frame_lines(frame):
            click.echo(text)
        if self._redraw:
            click.echo("q quits")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        """Nothing to undo."""


class RichScreen:
    """Draws with rich, on a screen of its own."""

    def __init__(self) -> None:
        from rich.live import Live

        self._live = Live(screen=True, auto_refresh=False)

    def draw(self, frame: Frame) -> None:
        """Show the frame."""
        self._live.update(_rich_view(frame), refresh=True)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._live.__exit__(None, None, None)


def _rich_view(frame: Frame) -> Any:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    stats = frame.stats
    counts = Table("tasks", "state", "", title=Text(printable(frame.url)), expand=True)
    largest = max(1, *(getattr(stats, state) for state in MEANINGS))
    for state in MEANINGS:
        count = getattr(stats, state)
        bar = "█" * round(40 * count / largest)
        colour = {"failed": "red", "completed": "green", "leased": "cyan"}.get(state, "")
        counts.add_row(f"{count:,}", state, Text(bar, style=colour))
    parts: list[Any] = [counts]
    if stats.paused:
        parts.append(Text("paused: `dfq resume` hands out tasks again", style="yellow"))
    if stats.stuck:
        parts.append(Text(f"{stats.stuck:,} blocked tasks are stuck: see `dfq doctor`", "red"))
    if frame.rate is not None:
        parts.append(Text(f"{frame.rate:,.1f} finished per second"))
    if frame.leases:
        held = Table("worker", "task", "", title="held", expand=True)
        for row in holder_rows(frame):
            held.add_row(*(Text(cell) for cell in row))
        parts.append(held)
    parts.append(Text("q quits", style="dim"))
    return Group(*parts)
