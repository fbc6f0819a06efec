"""Run many seeds, and tell of those that find something.

    python -m tests.simulation.seeds [--from FIRST] [--count N] [--without GUARD]

Each seed is a run of its own, so all processors take part. One seed is run again, with all that
happens, by ``python -m tests.simulation.replay SEED``.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import NamedTuple

from tests.simulation.guards import GUARDS
from tests.simulation.scenario import run

#: A process runs so many seeds before it asks for more.
_LOT = 50


class Finding(NamedTuple):
    """What a seed found."""

    seed: int
    what: str

    def __str__(self) -> str:
        return f"seed {self.seed}: {self.what}\n  python -m tests.simulation.replay {self.seed}"


def _run_lot(seeds: Iterable[int], without: str | None) -> list[Finding]:
    """What some seeds find, in the process that runs them."""
    if without is None:
        return [Finding(seed, what) for seed in seeds if (what := run(seed)) is not None]
    with GUARDS[without].taken_out():
        return _run_lot(seeds, None)


def findings(seeds: range, without: str | None = None) -> Iterator[Finding]:
    """What seeds find, in their order; ``without``: the guard that is taken out meanwhile."""
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        lots = [seeds[start : start + _LOT] for start in range(0, len(seeds), _LOT)]
        try:
            for found in pool.map(_run_lot, lots, [without] * len(lots)):
                yield from found
        finally:
            pool.shutdown(cancel_futures=True)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="Run seeds of the simulation.")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=20_000, help="how many")
    parser.add_argument("--without", choices=sorted(GUARDS), help="take this guard out")
    options = parser.parse_args()
    found = 0
    for finding in findings(range(options.first, options.first + options.count), options.without):
        print(finding, flush=True)
        found += 1
    print(f"{options.count:,} seeds, {found:,} found something")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
