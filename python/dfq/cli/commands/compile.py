"""`dfq compile`, which is `dfq index compile` as well."""

from __future__ import annotations

import dataclasses
import threading
from typing import TYPE_CHECKING

import click

from dfq.cli.indexes import open_index, takes_index
from dfq.cli.options import DURATION, quiet_option
from dfq.cli.options import command as dfq_command
from dfq.cli.output import complain, counted, json_line, line, note

if TYPE_CHECKING:
    from dfq.compiler.index import Index
    from dfq.compiler.passes import Bounds
    from dfq.compiler.reports import CompileReport, Reject

FAILED, INTERRUPTED = 1, 130
_SHOWN = 20


@dfq_command(
    "dfq compile shops",
    "dfq compile shops --dry-run",
    "dfq compile shops --parallel 4 --json",
)
@takes_index
@click.option("--watch", is_flag=True, help="Go on for ever, until Ctrl-C or SIGTERM.")
@click.option("--once", is_flag=True, help="End when nothing waits any more: the default.")
@click.option("--dry-run", is_flag=True, help="Only say what waits.")
@click.option("--parallel", type=int, metavar="N", help="Shards at once: 2.")
@click.option("--max-files", type=int, metavar="N", help="Inbox files of one merge: 10,000.")
@click.option("--poll", type=DURATION, default="1m", help="The longest pause of --watch: 1m.")
@quiet_option("Nothing but errors: no counts, no progress bar.")
@click.pass_context
def command(
    ctx: click.Context,
    index: str,
    watch: bool,
    once: bool,
    dry_run: bool,
    parallel: int | None,
    max_files: int | None,
    poll: float,
    quiet: bool | None,
    as_json: bool,
) -> None:
    """Fold what waits into the shards of an index.

    Any number of these may run at once, on any machine; each shard is compiled by whoever comes
    first, and nothing is lost if one is killed. What can't be read is moved to quarantine/ with
    a reason. On Ctrl-C or SIGTERM the shard at hand is finished first; a second one stops at
    once.

    Ends with 1 if a shard is damaged: it is left as it is, and so is its inbox.
    """
    if watch + once + dry_run > 1:
        raise click.UsageError("give one of --watch, --once and --dry-run")
    bounds = _bounds(parallel, max_files)
    with open_index(index) as opened:
        if dry_run:
            _plan(opened, as_json)
        elif watch:
            _watch(opened, bounds, poll, as_json, bool(quiet))
        else:
            ctx.exit(_once(opened, bounds, as_json, bool(quiet)))


def _bounds(parallel: int | None, max_files: int | None) -> Bounds:
    from dfq.compiler.passes import Bounds

    for name, value in (("--parallel", parallel), ("--max-files", max_files)):
        if value is not None and not 1 <= value <= 100_000:
            raise click.BadParameter("it must be between 1 and 100,000", param_hint=name)
    given = {"parallel": parallel, "max_files": max_files}
    return Bounds(**{name: value for name, value in given.items() if value is not None})


def _plan(index: Index, as_json: bool) -> None:
    plan = index.plan()
    if as_json:
        json_line(dataclasses.asdict(plan))
        return
    files = sum(plan.waiting.values()) + plan.flat_files
    if not files:
        line("nothing waits")
        return
    line(f"{counted(files, 'file')} of {plan.bytes:,} bytes for {len(plan.waiting)} shards")
    if plan.flat_files:
        line(f"{counted(plan.flat_files, 'file')} of them in no inbox of a shard yet")
    if plan.locked:
        line(f"being compiled now: {', '.join(plan.locked)}")
    _name_ignored(plan.ignored)


def _once(index: Index, bounds: Bounds, as_json: bool, quiet: bool) -> int:
    from dfq.cli.progress import progress

    stop = _Stop()
    with stop, progress("compiling", None, silent=quiet or as_json, unit="files") as bar:
        report = index.compile(
            bounds=bounds,
            stop=stop.event,
            on_progress=lambda done, total: bar.update(done, total),
        )
    if as_json:
        json_line(report.to_json())
    else:
        _report(report, quiet=quiet)
        _name_ignored(report.ignored)
    if report.damaged:
        return FAILED
    return INTERRUPTED if stop.event.is_set() else 0


def _watch(index: Index, bounds: Bounds, poll: float, as_json: bool, quiet: bool) -> None:
    ignored: set[str] = set()

    def passed(report: CompileReport) -> None:
        if as_json:
            if report.files or report.quarantined or report.damaged:
                json_line(report.to_json())
            return
        if report.files or report.damaged:
            _report(report, quiet=quiet)
        # Each is told once; it will lie there for long.
        _name_ignored([key for key in report.ignored if key not in ignored])
        ignored.update(report.ignored)

    with _Stop() as stop:
        if not quiet:
            note(f"compiling {index.url}; Ctrl-C ends it")
        index.watch(
            stop=stop.event,
            bounds=bounds,
            on_pass=passed,
            on_error=lambda error: complain(f"{error}; trying again"),
            longest_pause_seconds=max(poll, 0.1),
        )


def _report(report: CompileReport, *, quiet: bool) -> None:
    done = [one for one in report.shards if one.outcome == "compiled"]
    if not quiet:
        taken = sum(one.taken for one in report.shards)
        line(
            f"compiled {counted(len(done), 'shard')} from {counted(report.files, 'file')}: "
            f"{counted(taken, 'record')} taken, {report.waiting:,} files left"
        )
    for one in report.damaged:
        complain(one.message)
    future = [name for one in report.shards for name, _ in one.future]
    if future:
        note(f"{counted(len(future), 'record')} of a later day than today, first in {future[0]}")
    _name_rejects(report.quarantined)


def _name_rejects(rejects: list[Reject]) -> None:
    for one in rejects[:_SHOWN]:
        note(f"moved to quarantine: record {one.record} of {one.source}: {one.message}")
    if len(rejects) > _SHOWN:
        note(f"{counted(len(rejects), 'record')} moved to quarantine in all")


def _name_ignored(keys: list[str]) -> None:
    for key in keys[:_SHOWN]:
        note(
            f"left alone: {key} is never compiled; what is compiled are regular files that can be "
            "read, named NAME.usv"
        )


class _Stop:
    """The first SIGINT or SIGTERM asks to stop, the second one interrupts."""

    def __init__(self) -> None:
        from dfq.worker.signals import StopSignals

        self.event = threading.Event()
        self._signals = StopSignals(self._receive, wake=lambda: None)

    def _receive(self, _number: int) -> None:
        if self.event.is_set():
            raise KeyboardInterrupt
        self.event.set()

    def __enter__(self) -> _Stop:
        self._signals.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._signals.__exit__(*exc)
