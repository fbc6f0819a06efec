"""Progress bars: rich's when it is installed, click's when not, none without a terminal."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any, Protocol, Self


class Bar(Protocol):
    """A progress bar, as a context manager."""

    def update(self, done: int, total: int | None = None, note: str = "") -> None:
        """Show that ``done`` of ``total`` is done."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


def progress(label: str, total: int | None, *, silent: bool = False, unit: str = "tasks") -> Bar:
    """A bar on stderr; one that shows nothing if ``silent`` or stderr is no terminal."""
    if silent or not sys.stderr.isatty():
        return SilentBar()
    try:
        return RichBar(label, total, unit)
    except ImportError:
        return ClickBar(label, total, unit)


class SilentBar:
    """Shows nothing."""

    def update(self, done: int, total: int | None = None, note: str = "") -> None:
        """Nothing to do."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        """Nothing to undo."""


class RichBar:
    """A bar drawn by rich."""

    def __init__(self, label: str, total: int | None, unit: str) -> None:
        from rich.console import Console
        from rich.markup import escape
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        amount = DownloadColumn() if unit == "bytes" else MofNCompleteColumn()
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            amount,
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=Console(stderr=True),
        )
        self._task = self._progress.add_task(escape(label), total=total, note="")

    def update(self, done: int, total: int | None = None, note: str = "") -> None:
        """Show that ``done`` of ``total`` is done."""
        from rich.markup import escape

        more: dict[str, Any] = {} if total is None else {"total": total}
        self._progress.update(self._task, completed=done, note=escape(note), **more)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._progress.stop()


class ClickBar:
    """A bar drawn by click; a bare count while the total is unknown."""

    def __init__(self, label: str, total: int | None, unit: str) -> None:
        import click

        self._label = label
        self._unit = unit
        self._done = 0
        self._bar: Any = click.progressbar(
            length=total or 0, label=label, file=sys.stderr, show_pos=True, show_eta=True
        )
        self._counting = total is None

    def update(self, done: int, total: int | None = None, note: str = "") -> None:
        """Show that ``done`` of ``total`` is done."""
        if total is not None:
            self._counting = False
            self._bar.length = total
        if self._counting:
            sys.stderr.write(f"\r{self._label}: {done:,} {self._unit} {note}")
            sys.stderr.flush()
        else:
            self._bar.label = f"{self._label} ({note})" if note else self._label
            self._bar.update(done - self._done)
            self._done = done

    def __enter__(self) -> Self:
        if not self._counting:
            self._bar.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._counting:
            sys.stderr.write("\n")
        else:
            self._bar.render_progress()  # click draws at a step, not when only the total changed
            self._bar.render_finish()
