"""The file queue under pytest-benchmark: ``python -m pytest benches``.

Compare within a group; ``python -m benches.report`` takes the ratios that are promised.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from subprocess import DEVNULL, run
from typing import Any

import pytest

import dfq
from benches import bare, peers
from benches.filesystems import Ground
from benches.payloads import payloads
from benches.processes import Crew
from benches.subjects import fill_deep

TASKS = 10_000
DEEP = 100_000
ROUNDS = 3

pytestmark = pytest.mark.timeout(1200)


def timed(
    benchmark: Any, ground: Ground, group: str, fill: Callable[[Path], None], make: Any
) -> None:
    """Time what ``make(path)`` returns, each round on a fresh directory that ``fill`` filled."""
    with ExitStack() as cleanup:

        def setup() -> tuple[tuple[()], dict[str, Any]]:
            path = cleanup.enter_context(ground.directory())
            fill(path)
            ground.settle()
            return (), {"work": make(path)}

        benchmark.group = f"{group} on {ground.name}"
        benchmark.pedantic(lambda work: work(), setup=setup, rounds=ROUNDS)


def exactly_once(crew: Crew) -> None:
    drained = crew.run(TASKS)
    assert (drained.done, drained.lost, drained.twice) == (TASKS, 0, 0), drained


def fill_with(peer: peers.Peer) -> Callable[[Path], None]:
    fill = peers.fill_dfq_many if peer in (peers.DFQ, peers.DFQ_MANY) else peer.fill
    return lambda path: fill(path, payloads(TASKS))


@pytest.mark.parametrize("processes", [1, 2, 4])
@pytest.mark.parametrize(
    "peer", [peers.DFQ, peers.DFQ_MANY, peers.SEED], ids=lambda peer: peer.name
)
def test_every_task_is_claimed_read_and_acked_once(
    benchmark: Any, ground: Ground, peer: peers.Peer, processes: int
) -> None:
    timed(
        benchmark, ground, f"claim + read + ack of {TASKS:,}", fill_with(peer),
        lambda path: partial(exactly_once, Crew(peer.open_drain, path, processes)),
    )  # fmt: skip


def test_the_same_system_calls_in_a_bare_loop(benchmark: Any, ground: Ground) -> None:
    timed(
        benchmark, ground, f"claim + read + ack of {TASKS:,}", fill_with(peers.DFQ),
        lambda path: partial(bare.run, "drain", path, bare.cores()),
    )  # fmt: skip


@pytest.fixture(scope="module")
def deep_queue(ground: Ground) -> Any:
    with ground.directory() as path:
        fill_deep(path, DEEP)
        ground.settle()
        yield path


def test_the_first_claim_on_a_deep_queue(benchmark: Any, ground: Ground, deep_queue: Path) -> None:
    def open_and_claim() -> None:
        with dfq.open(deep_queue) as queue:
            lease = queue.claim("bench")
            assert lease is not None
            queue.release(lease)

    benchmark.group = f"cold first claim, {DEEP:,} pending on {ground.name}"
    benchmark.pedantic(open_and_claim, rounds=ROUNDS)


def test_a_bare_parallel_scan_of_a_deep_queue(
    benchmark: Any, ground: Ground, deep_queue: Path
) -> None:
    benchmark.group = f"cold first claim, {DEEP:,} pending on {ground.name}"
    benchmark.pedantic(bare.run, ("scan", deep_queue, bare.cores()), rounds=ROUNDS)


@pytest.mark.parametrize("fill", [peers.fill_dfq, peers.fill_dfq_many])
def test_pushing_durably(
    benchmark: Any, disk: Ground, fill: Callable[[Path, peers.Payloads], None]
) -> None:
    timed(
        benchmark, disk, f"push of {TASKS:,}, durable", lambda path: None,
        lambda path: partial(fill, path, payloads(TASKS)),
    )  # fmt: skip


@pytest.mark.parametrize(
    "arguments", [["-m", "dfq", "stats"], ["-c", "import orjson, click"]], ids=["stats", "imports"]
)
def test_starting_and_answering(benchmark: Any, ground: Ground, arguments: list[str]) -> None:
    with ground.directory() as path:
        fill_deep(path, TASKS)
        benchmark.group = f"start, {TASKS:,} tasks on {ground.name}"
        benchmark.pedantic(
            lambda: run([sys.executable, *arguments, str(path)], check=True, stdout=DEVNULL),
            rounds=9,
        )
