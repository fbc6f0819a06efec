"""The extension beside the first design in plain Python, in one emulator.

What is counted goes into ``extra_info``; ``tools/arm/history.py`` compares it with the baseline.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

import dfq
from benches.arm import calls, subjects
from benches.filesystems import Ground
from benches.payloads import payloads
from benches.peers import fill_dfq_many, fill_seed
from benches.seed_queue import SeedQueue

TASKS = 2_000
DEEP = 10_000
SOME = 100
ROUNDS = 5
#: From the second count on every shard is there; what differs is the tasks.
FEW, MANY = 1_500, 2_500

pytestmark = pytest.mark.timeout(1200)


@pytest.mark.parametrize(
    "prepare",
    [subjects.claim_and_ack, subjects.claim_and_ack_seed, subjects.push_many],
    ids=["claim and ack", "claim and ack, first design", "push many"],
)
def test_working_off(benchmark: Any, ground: Ground, prepare: Callable[..., Any]) -> None:
    with ExitStack() as cleanup:

        def setup() -> tuple[tuple[()], dict[str, Any]]:
            path = cleanup.enter_context(ground.directory())
            return (), {"work": prepare(str(path), TASKS)}

        benchmark.extra_info["tasks"] = TASKS
        benchmark.pedantic(lambda work: work(), setup=setup, rounds=ROUNDS)


@pytest.mark.parametrize(
    "prepare",
    [subjects.some_of_many, subjects.some_of_many_rescanning],
    ids=["claim and ack", "claim and ack, first design as its origin"],
)
def test_taking_some_of_many(benchmark: Any, ground: Ground, prepare: Callable[..., Any]) -> None:
    with ExitStack() as cleanup:

        def setup() -> tuple[tuple[()], dict[str, Any]]:
            path = cleanup.enter_context(ground.directory())
            return (), {"work": prepare(str(path), SOME, DEEP)}

        benchmark.extra_info["tasks"] = SOME
        benchmark.pedantic(lambda work: work(), setup=setup, rounds=3)


def test_the_first_claim(benchmark: Any, ground: Ground) -> None:
    """Open, scan, shuffle, take one: the index is built anew each time. Not timed: giving back."""
    with ground.directory() as path:
        fill_dfq_many(path, payloads(DEEP))
        taken: list[Any] = []

        def give_back() -> None:
            if taken:
                queue, lease = taken
                queue.release(lease)
                queue.close()
                taken.clear()

        def first_claim() -> None:
            queue = dfq.open(path)
            taken.extend((queue, queue.claim("bench")))

        benchmark.pedantic(first_claim, setup=give_back, rounds=ROUNDS, warmup_rounds=1)


def test_the_first_claim_of_the_first_design(benchmark: Any, ground: Ground) -> None:
    with ground.directory() as path:
        fill_seed(path, payloads(DEEP))
        taken: list[Any] = []

        def give_back() -> None:
            if taken:
                (path / "pending" / taken.pop().task_id / "lease.json").unlink()

        def first_claim() -> None:
            taken.append(SeedQueue(path).claim("bench"))

        benchmark.pedantic(first_claim, setup=give_back, rounds=ROUNDS, warmup_rounds=1)


@pytest.mark.parametrize(
    "verb", ["claim_and_ack", "claim_and_ack_seed", "push_many", "push_one_by_one"]
)
def test_system_calls_of_a_task(benchmark: Any, verb: str) -> None:
    """Timed is nothing here: the benchmark carries the counts."""
    few, many = (FEW, MANY) if verb != "push_one_by_one" else (300, 500)
    benchmark.extra_info["calls"] = calls.per_task(verb, few, many)
    benchmark.pedantic(int, rounds=1)
