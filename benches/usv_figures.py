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


def merge_figures(ground: Ground, plan: Plan) -> Iterator[Figure]:
    """Seconds and memory of a merge, in turns with the others."""
    with ground.directory() as path:
        small, large = path / "small", path / "large"
        for folder, records in ((small, plan.shard_records), (large, 10 * plan.shard_records)):
            folder.mkdir()
            usv_data.make(folder, records, INBOX_FILES)
        took: dict[str, list[tuple[float, float, float]]] = {}
        for _ in range(plan.rounds):
            for name in ("nothing", "dfq", *PEERS):
                took.setdefault(name, []).append(merge(name, small))
            took.setdefault("large", []).append(merge("dfq", large))
    seconds = {name: statistics.median(one[0] for one in all_) for name, all_ in took.items()}
    megabytes = {name: max(one[2] for one in all_) / 1024 for name, all_ in took.items()}
    what = f"merge of {plan.shard_records:,} records with {INBOX_FILES:,} inbox files"
    for peer, bound in PEERS.items():
        yield at_least(
            f"{what}, against {peer}", ground, seconds[peer] / seconds["dfq"], bound,
            f"{seconds['dfq'] * 1000:.0f} ms against {seconds[peer] * 1000:.0f} ms",
        )  # fmt: skip
    above = megabytes["dfq"] - megabytes["nothing"]
    yield Figure(
        f"{what}, peak memory above the interpreter (VmHWM)", ground.name,
        f"{above:.1f} MB (polars {megabytes['polars'] - megabytes['nothing']:.0f} MB)", "≤ 25 MB",
        above <= 25,
    )  # fmt: skip
    more = megabytes["large"] - megabytes["dfq"]
    yield at_most(
        "merge into a shard of ten times the records, time", ground,
        seconds["large"] / seconds["dfq"], 12.0,
        f"{seconds['large'] * 1000:.0f} ms; {more:+.1f} MB",
    )  # fmt: skip


def merge(name: str, folder: Path) -> tuple[float, float, float]:
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
