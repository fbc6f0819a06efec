"""The figures of USV: merging beside other ways to do it, reading beside memchr.

``python -m benches.usv_figures`` prints them; `make bench` puts them on the page.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from benches import usv_data
from benches.bare import example
from benches.figures import REPOSITORY, Figure, Plan, at_least, at_most
from benches.filesystems import Ground, tmpfs

INBOX_FILES = 5_000
PEERS = {"streaming Python": 2.0, "polars": 4.0}
#: Files and records in each, of an inbox that does not fit into memory.
FLOOD = 64, 10_000
#: Seconds, CPU seconds and peak memory in KB.
Run = tuple[float, float, float]


def merge_figures(ground: Ground, plan: Plan) -> Iterator[Figure]:
    """Seconds and memory of a merge, in turns with the others."""
    subjects = ["nothing", "dfq", *PEERS, *(f"{peer}, no hash" for peer in PEERS)]
    with ground.directory() as path:
        small, large, flood = path / "small", path / "large", path / "flood"
        for folder, records in ((small, plan.shard_records), (large, 10 * plan.shard_records)):
            folder.mkdir()
            usv_data.make(folder, records, INBOX_FILES)
        flood.mkdir()
        usv_data.make(flood, plan.shard_records, FLOOD[0], (FLOOD[1], FLOOD[1]))
        took: dict[str, list[Run]] = {}
        for _ in range(plan.rounds):
            for name in subjects:
                took.setdefault(name, []).append(merge(name, small))
            took.setdefault("large", []).append(merge("dfq", large))
            took.setdefault("flood", []).append(merge("dfq", flood))
    yield from speed_figures(ground, plan, took)
    yield from memory_figures(ground, plan, took)


def of_merge(plan: Plan) -> str:
    """What is merged."""
    return f"merge of {plan.shard_records:,} records with {INBOX_FILES:,} inbox files"


def speed_figures(ground: Ground, plan: Plan, took: dict[str, list[Run]]) -> Iterator[Figure]:
    """Seconds, and CPU seconds beside them; those of all with the sha256 of what was written."""
    seconds = {name: statistics.median(one[0] for one in runs) for name, runs in took.items()}
    cpu = {name: statistics.median(one[1] for one in runs) for name, runs in took.items()}
    for peer, bound in PEERS.items():
        plain = f"{peer}, no hash"
        yield at_least(
            f"{of_merge(plan)}, against {peer}", ground, seconds[peer] / seconds["dfq"], bound,
            f"{seconds['dfq'] * 1000:.0f} ms against {seconds[peer] * 1000:.0f} ms, "
            f"CPU {cpu['dfq'] * 1000:.0f} against {cpu[peer] * 1000:.0f}; "
            f"against one without the sha256 {seconds[plain] / seconds['dfq']:.2f}x",
        )  # fmt: skip
    yield at_most(
        "merge into a shard of ten times the records, time", ground,
        seconds["large"] / seconds["dfq"], 12.0,
        f"{seconds['large'] * 1000:.0f} ms, CPU {cpu['large'] / cpu['dfq']:.2f}x",
    )  # fmt: skip


def memory_figures(ground: Ground, plan: Plan, took: dict[str, list[Run]]) -> Iterator[Figure]:
    """Peaks (VmHWM)."""
    peak = {name: max(one[2] for one in runs) / 1024 for name, runs in took.items()}
    above = {name: one - peak["nothing"] for name, one in peak.items()}
    flood = f"merge of {plan.shard_records:,} records with {FLOOD[0] * FLOOD[1]:,} in the inbox"
    for what, name, more in (
        (of_merge(plan), "dfq", f" (polars {above['polars']:.0f} MB)"),
        (flood, "flood", ""),
    ):
        yield Figure(
            f"{what}, peak memory above the interpreter (VmHWM)", ground.name,
            f"{above[name]:.1f} MB{more}", "≤ 25 MB", above[name] <= 25,
        )  # fmt: skip
    more_mb = peak["large"] - peak["dfq"]
    yield Figure(
        "merge into a shard of ten times the records, more memory", ground.name,
        f"{more_mb:+.1f} MB", "≤ 1 MB", more_mb <= 1,
    )  # fmt: skip


def merge(name: str, folder: Path) -> Run:
    """Seconds, CPU seconds and peak memory in KB of one merge, in a process of its own."""
    for left in ("output.usv", "rejects", "joined.usv"):
        (folder / left).unlink(missing_ok=True)
    done = subprocess.run(
        [sys.executable, "-m", "benches.usv_merges", name, str(folder)],
        cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    seconds, cpu_seconds, peak_kb = map(float, done.stdout.split())
    return seconds, cpu_seconds, peak_kb


def throughput_figures(ground: Ground, plan: Plan) -> Iterator[Figure]:
    """CPU time of reading and writing a large file, beside memchr over the same bytes."""
    with ground.directory() as path:
        usv_data.make(path, 10 * plan.shard_records, 0)
        command = [example("usv_throughput"), path / "shard.usv", str(plan.rounds)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(done.stdout)

    def rate(name: str) -> float:
        return float(found["bytes"]) / float(found[name]) / 1e6

    hashing = f"with sha256 {rate('parse_write_hash'):,.0f}, sha256 alone {rate('hash'):,.0f}"
    for what, name, more in (
        ("parse", "parse", f"count {rate('count'):,.0f}"),
        ("parse and write", "parse_write", hashing),
    ):
        yield Figure(
            f"{what} USV, MB of a large file per CPU second", ground.name,
            f"{rate(name):,.0f} (memchr {rate('memchr'):,.0f}; {more})",
            "≥ 500, or memchr's half",
            rate(name) >= min(500, rate("memchr") / 2),
        )  # fmt: skip
    apart = found["parse_write_file"] + found["hash"]
    yield at_most(
        "write a USV file with its sha256, CPU time against both apart", ground,
        found["parse_write_hash"] / apart, 1.1,
        f"{found['parse_write_hash'] * 1000:.0f} ms against {found['parse_write_file'] * 1000:.0f} "
        f"and {found['hash'] * 1000:.0f}",
    )  # fmt: skip


FIGURES = (merge_figures, throughput_figures)


def main() -> None:
    """Print all figures, taken on a tmpfs."""
    with tmpfs() as ground:
        for take in FIGURES:
            for figure in take(ground, Plan()):
                mark = "met   " if figure.met else "MISSED"
                print(f"{mark} {figure.what}: {figure.measured}, target {figure.target}")


if __name__ == "__main__":
    main()
