"""Compare what was measured in the emulator with what was before, and draw how it went.

Counts decide: more system calls or more bytes for a task than the baseline has fail a run.
Seconds never do. Of them only ratios within one emulator are kept, and beside the baseline's they
fail a run only where half of one is gone, which is no noise.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tools.arm.places import REPOSITORY
from tools.arm.shell import Failed, run

BASELINE = REPOSITORY / "benches/arm/baseline.json"
HISTORY = REPOSITORY / "benches/arm/history.jsonl"
PLOT = REPOSITORY / "docs/benchmarks/arm-history.svg"

#: What the extension has to be worth in the emulator; said, not enforced, as it is of seconds.
PROMISED_RATIO = 3.0
#: A look that comes a tick later, a shard without a task: so much is luck.
_TOLERATED_CALLS = 0.3
_TOLERATED_BYTES = 8.0
#: Of a ratio: other work on the machine moves it by a tenth or two.
_LEFT_AT_LEAST = 0.5

#: Slow and fast benchmark of each ratio.
_RATIOS = {
    "claim + ack": (
        "test_working_off[claim and ack, first design]",
        "test_working_off[claim and ack]",
    ),
    "claim + ack of 100 among 10,000": (
        "test_taking_some_of_many[claim and ack, first design as its origin]",
        "test_taking_some_of_many[claim and ack]",
    ),
    "scan + shuffle of 10,000": (
        "test_the_first_claim_of_the_first_design",
        "test_the_first_claim",
    ),
}
#: The third is so large that beside it nothing else would be seen.
_DRAWN = {"claim + ack": "#08519c", "scan + shuffle of 10,000": "#4292c6"}
_COUNTED = ("claim_and_ack", "push_many", "push_one_by_one")


@dataclass(frozen=True)
class Measured:
    """One run, as it is kept."""

    suite: str
    #: Calls and bytes of a task, by verb.
    calls: dict[str, dict[str, float]]
    #: How many times faster than the first design, by what was done.
    ratios: dict[str, float]
    idle_kilobytes: int
    #: What it has more after 10,000 tasks, of a hundred.
    growth_percent: float | None = None
    commit: str = ""
    date: str = ""

    def baseline(self) -> dict[str, Any]:
        """What later runs are held to."""
        return {"calls": self.calls, "ratios": self.ratios}


def measured_in(suite: str, report: dict[str, Any]) -> Measured:
    """What counts of a report of pytest-benchmark."""
    found = {one["name"]: one for one in report["benchmarks"]}
    grown = found["test_a_worker_does_not_grow"]["extra_info"]
    return Measured(
        suite=suite,
        calls={
            verb: found[f"test_system_calls_of_a_task[{verb}]"]["extra_info"]["calls"]
            for verb in _COUNTED
        },
        ratios={
            name: round(found[slow]["stats"]["median"] / found[fast]["stats"]["median"], 2)
            for name, (slow, fast) in _RATIOS.items()
        },
        idle_kilobytes=found["test_an_idle_worker_is_small"]["extra_info"]["resident kB"],
        growth_percent=round(100 * (grown["kB after"] / grown["kB before"] - 1), 2),
    )


def worse(measured: Measured, baseline: dict[str, Any]) -> list[str]:
    """Where a task costs more than it did, or the extension is worth but half."""
    if measured.suite not in baseline:
        raise Failed(f"{BASELINE.name} has nothing for {measured.suite}; run with KEEP=1 once")
    before = baseline[measured.suite]
    return [*_excesses(measured, before["calls"]), *_losses(measured, before["ratios"])]


def _excesses(measured: Measured, calls: dict[str, dict[str, float]]) -> list[str]:
    found = []
    for verb, before in calls.items():
        now = measured.calls[verb]
        for name in sorted({*before, *now}):
            had, has = before.get(name, 0.0), now.get(name, 0.0)
            tolerated = _TOLERATED_BYTES if name == "bytes written" else _TOLERATED_CALLS
            if has > had + tolerated:
                found.append(f"{verb}: {name} {has:g} a task, {had:g} before")
    return found


def _losses(measured: Measured, ratios: dict[str, float]) -> list[str]:
    return [
        f"{name}: {measured.ratios[name]:g} times the first design, {before:g} times before"
        for name, before in ratios.items()
        if measured.ratios[name] < before * _LEFT_AT_LEAST
    ]


def shortfalls(measured: Measured) -> list[str]:
    """Ratios below what is promised, for whoever reads the log."""
    return [
        f"{name}: {ratio:g} times the first design, {PROMISED_RATIO:g} are promised"
        for name, ratio in measured.ratios.items()
        if ratio < PROMISED_RATIO
    ]


def read_baseline() -> dict[str, Any]:
    """Calls and bytes by verb, and ratios, by release."""
    if not BASELINE.exists():
        return {}
    baseline: dict[str, Any] = json.loads(BASELINE.read_text())
    return baseline


def keep(measured: Measured) -> None:
    """Make this run the baseline, and a point of the history."""
    baseline = {**read_baseline(), measured.suite: measured.baseline()}
    BASELINE.write_text(json.dumps(baseline, indent=2, sort_keys=True) + "\n")
    commit, date = run(
        ["git", "log", "-1", "--format=%h %cs"], seconds=30, cwd=REPOSITORY
    ).split()  # fmt: skip
    point = {**asdict(measured), "commit": commit, "date": date}
    with HISTORY.open("a") as file:
        file.write(json.dumps(point, sort_keys=True) + "\n")


def read_history() -> list[Measured]:
    """All runs that were kept, oldest first."""
    if not HISTORY.exists():
        return []
    return [Measured(**json.loads(line)) for line in HISTORY.read_text().splitlines()]


def plot(points: list[Measured], path: Path) -> None:
    """Three pictures over each other: ratios, system calls of a task, memory."""
    import matplotlib as mpl

    mpl.use("agg")
    mpl.rcParams["svg.hashsalt"] = "dfq"
    from matplotlib import pyplot

    figure, (ratios, calls, memory) = pyplot.subplots(3, 1, figsize=(8, 7.5), sharex=True)
    for suite, style in (("bookworm", "-"), ("trixie", "--")):
        mine = [(place, one) for place, one in enumerate(points) if one.suite == suite]
        if not mine:
            continue
        places = [place for place, _ in mine]
        line = {"linestyle": style, "marker": "o", "markersize": 4}
        for name, colour in _DRAWN.items():
            values = [one.ratios[name] for _, one in mine]
            ratios.plot(places, values, color=colour, label=f"{name}, {suite}", **line)
        for verb, colour in zip(_COUNTED, ("#00441b", "#238b45", "#74c476"), strict=True):
            values = [_number_of_calls(one.calls[verb]) for _, one in mine]
            label = f"{verb.replace('_', ' ')}, {suite}"
            calls.plot(places, values, color=colour, label=label, **line)
        values = [one.idle_kilobytes / 1000 for _, one in mine]
        memory.plot(places, values, color="#7f2704", label=f"idle worker, {suite}", **line)
    ratios.axhline(PROMISED_RATIO, color="#999999", linewidth=0.8)
    ratios.set_ylabel("times the first design")
    calls.set_ylabel("system calls a task")
    memory.set_ylabel("MB resident")
    memory.set_xticks(range(len(points)), [f"{one.date}\n{one.commit}" for one in points])
    for axes in (ratios, calls, memory):
        axes.set_ylim(bottom=0)
        axes.grid(axis="y", color="#dddddd")
        axes.legend(fontsize=7, frameon=False, ncols=2)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="svg", metadata={"Date": None})
    pyplot.close(figure)


def _number_of_calls(calls: dict[str, float]) -> float:
    return sum(count for name, count in calls.items() if name != "bytes written")
