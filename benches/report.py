"""Measure everything and write docs/benchmarks.md with its plot: ``python -m benches.report``.

``--quick`` takes under three minutes and proves that it all runs; its figures are rough.
``--check`` ends with 1 if a promise is missed.
"""

from __future__ import annotations

import argparse
import datetime
import statistics
import sys
from pathlib import Path

from benches import figures, peers
from benches.bare import REPOSITORY, binary
from benches.figures import FIGURES, QUICK, Figure, Plan, machine
from benches.filesystems import GROUNDS, Ground, NoBenchFilesystem
from benches.results import Row, Run, load, save
from benches.subjects import Race, race

DOCS = REPOSITORY / "docs"
NUMBERS = "figures.json"
#: Where queues are that are in no folder.
BUCKET = "s3"
PROCESSES = (1, 2, 4)


def compare(ground: Ground, plan: Plan) -> list[Row]:
    """Every peer with 1, 2 and 4 processes, in turns."""
    races: dict[tuple[str, int], list[Race]] = {}
    for turn in range(plan.rounds):
        for peer in peers.PEERS:
            count = _count(peer, plan)
            for processes in PROCESSES if peer.shared else PROCESSES[:1]:
                say(f"{ground.name}, turn {turn + 1}: {peer.name}, {processes} processes")
                result = race(ground, peer, processes, count)
                races.setdefault((peer.name, processes), []).append(result)
    return [_row(peer, ground, plan, races) for peer in peers.PEERS]


def _count(peer: peers.Peer, plan: Plan) -> int:
    return min(plan.peer_tasks, peer.most or plan.peer_tasks)


def _row(
    peer: peers.Peer, ground: Ground, plan: Plan, races: dict[tuple[str, int], list[Race]]
) -> Row:
    count = _count(peer, plan)
    own = [r for (name, _), results in races.items() if name == peer.name for r in results]
    drains: dict[int, float | None] = {}
    for processes in PROCESSES:
        results = races.get((peer.name, processes))
        rates = [r.drained.per_second for r in results or ()]
        drains[processes] = statistics.median(rates) if rates else None
    return Row(
        name=peer.name,
        ground=ground.name,
        durability=peer.durability,
        note=peer.note,
        tasks=count,
        pushes=statistics.median(count / r.fill_seconds for r in own),
        drains=drains,
        lost=max(r.drained.lost for r in own),
        twice=max(r.drained.twice for r in own),
        failed=next((r.drained.failed for r in own if r.drained.failed), ""),
    )


def say(text: str) -> None:
    """Tell the person who waits."""
    print(text, file=sys.stderr, flush=True)


def measure(name: str, plan: Plan) -> Run:
    """All figures and the comparison, in one place."""
    if name == BUCKET:
        return measure_bucket(plan)
    binary()
    found: list[Figure] = []
    with GROUNDS[name]() as ground:
        for take, where in FIGURES.items():
            if name in where:
                say(f"{name}: {take.__name__.replace('_', ' ')}")
                found += map(told, take(ground, plan))
        if name == "tmpfs":
            found += usv(ground, plan)
        return Run(ground.description, taken(plan), found, rows=compare(ground, plan))


def usv(ground: Ground, plan: Plan) -> list[Figure]:
    """The figures of USV."""
    from benches import usv_figures

    found: list[Figure] = []
    for take in usv_figures.FIGURES:
        say(f"{ground.name}: {take.__name__.replace('_', ' ')}")
        found += map(told, take(ground, plan))
    return found


def measure_bucket(plan: Plan) -> Run:
    """The same for queues in buckets."""
    from benches import s3_figures

    found: list[Figure] = []
    for take in s3_figures.FIGURES:
        say(f"{BUCKET}: {take.__name__.replace('_', ' ')}")
        found += map(told, take(plan))
    say(f"{BUCKET}: eight workers")
    contests = s3_figures.contests(plan)
    return Run(s3_figures.DESCRIPTION, taken(plan), found, contests=contests)


def told(figure: Figure) -> Figure:
    """The figure, said as well."""
    say(f"  {'met   ' if figure.met else 'MISSED'} {figure.what}: "
        f"{figure.measured}, target {figure.target}")  # fmt: skip
    return figure


def taken(plan: Plan) -> str:
    """When and how a run was made."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    kind = "a quick run, rough figures" if plan is QUICK else "a full run"
    return f"{today}, {kind}, medians of {plan.rounds}; {machine()}"


def write(runs: dict[str, Run], docs: Path) -> None:
    """docs/benchmarks.md, its plots, and the numbers as JSON beside them."""
    from benches.plot import plot_peers

    directory = docs / "benchmarks"
    directory.mkdir(parents=True, exist_ok=True)
    plots = []
    for ground, run in runs.items():
        if run.rows:
            name = f"peers-{ground}.svg"
            plot_peers(run.rows, ground, directory / name)
            plots.append((ground, f"benchmarks/{name}"))
    save(directory / NUMBERS, runs)
    (docs / "benchmarks.md").write_text(page(runs, plots))


def page(runs: dict[str, Run], plots: list[tuple[str, str]]) -> str:
    """The page, in Markdown."""
    lines = [
        "# Benchmarks",
        "",
        "Written by `make bench`; do not edit by hand. Machines differ and the same machine is",
        "not the same an hour later, so every promise is a ratio between things measured in",
        "turns within one run. Rates are there to show the order.",
        "",
        *(f"- `{name}` is {run.what}. Taken on {run.taken}." for name, run in runs.items()),
        "- Tasks have a payload of 300 bytes of JSON. The machine's own disk is never used:",
        "  what it is decides a file benchmark more than the program does.",
        "- The *bare loop* (`rust/dfq-core/examples/bare_loop.rs`) makes the file engine's system",
        "  calls on the very same files, with no index, no JSON and no Python around them.",
        "- The *first design* (`benches/seed_queue.py`) is the design dfq grew from, in plain",
        "  Python: list, shuffle, lease with `O_EXCL`, read; then move the payload and remove the",
        "  directory. It syncs nothing and has neither fences nor retries.",
        "",
        "## What dfq promises",
        "",
        "| what | on | measured | target | |",
        "|---|---|---|---|---|",
    ]
    for figure in (figure for run in runs.values() for figure in run.figures):
        mark = "met" if figure.met else "**missed**"
        cells = (figure.what, figure.ground, figure.measured, figure.target, mark)
        lines.append("| " + " | ".join(cells) + " |")
    lines += [
        "",
        "A *wake-up* is a moment at which any thread of the worker returns from sleep; threads",
        "that wake each other at one moment count once.",
        "",
        "## Side by side",
        "",
        "Push and claim + read + ack, tasks per second, with 1, 2 and 4 processes that all have",
        "the queue open before the clock starts. *Durability* is what a returned push has",
        "survived: compare within a kind. Settings are each project's defaults. A queue that",
        "slows down with depth gets fewer tasks, to its advantage. *Lost* and *twice* are the",
        "most seen in any run, without a crash.",
    ]
    for ground, plot in plots:
        lines += ["", f"### On {ground}", "", f"![claim + ack per second on {ground}]({plot})", ""]
        lines += table(runs[ground].rows)
    if BUCKET in runs:
        from benches.s3_figures import contest_lines

        lines += ["", *contest_lines(runs[BUCKET].contests)]
    return "\n".join(lines) + "\n"


def table(rows: list[Row]) -> list[str]:
    """The peers on one filesystem."""
    lines = [
        "| queue | durability | tasks | push/s | 1 process | 2 | 4 | lost | twice | |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|---|",
    ]
    for row in rows:
        rates = ["" if rate is None else f"{rate:,.0f}" for rate in row.drains.values()]
        note = row.note + (f" (failed: {row.failed[:80]})" if row.failed else "")
        cells = [row.name, row.durability, f"{row.tasks:,}", f"{row.pushes:,.0f}", *rates]
        lines.append("| " + " | ".join([*cells, str(row.lost), str(row.twice), note]) + " |")
    return lines


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benches.report", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="rough figures in under 3 minutes")
    parser.add_argument("--check", action="store_true", help="end with 1 if a promise is missed")
    places = [*GROUNDS, BUCKET]
    parser.add_argument(
        "--only", choices=places, action="append", help="this alone; the rest stays as it was"
    )
    parser.add_argument("--docs", type=Path, default=DOCS, help="where to write (default: docs/)")
    options = parser.parse_args()
    plan = QUICK if options.quick else figures.Plan()
    numbers = options.docs / "benchmarks" / NUMBERS
    runs = {name: run for name, run in load(numbers).items() if name in places}
    measured = options.only or places
    try:
        for name in measured:
            runs[name] = measure(name, plan)
    except NoBenchFilesystem as error:
        say(f"error: {error}")
        return 1
    runs = {name: runs[name] for name in places if name in runs}
    write(runs, options.docs)
    found = [figure for name in measured for figure in runs[name].figures]
    missed = [figure for figure in found if not figure.met]
    say(f"wrote {options.docs / 'benchmarks.md'}; {len(missed)} of {len(found)} targets missed")
    return 1 if options.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
