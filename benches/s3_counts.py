"""Requests that a queue in a bucket sends, counted on a store in memory: counts need no server."""

from __future__ import annotations

from collections.abc import Iterator

from benches.figures import Figure, Plan
from tests.integration.s3.counted import DAY_SECONDS, Idler, World, work_through

TASKS = 1_000
#: What a task may cost from push to ack.
_PUTS, _GETS, _LISTS = 3.0, 1.0, 0.02
#: The hundredth part of a PUT folds records, and every handle reads a few objects at its start.
_GRANTED = 1.02


def task_figures(plan: Plan) -> Iterator[Figure]:
    """What a task costs with one worker and with eight, sweeps and all."""
    one = _requests_per_task(1)
    met = (
        one["put"] <= _PUTS * _GRANTED and one["get"] <= _GETS * _GRANTED and one["list"] <= _LISTS
    )
    yield Figure(
        f"requests for a task, {TASKS:,} tasks, one worker", "memory", _told(one),
        "≤ 3 PUT, 1 GET, 0.02 LIST (2 % granted)", met,
    )  # fmt: skip
    eight = _requests_per_task(8)
    ratio = _priced(eight) / _priced(one)
    yield Figure(
        f"requests for a task, {TASKS:,} tasks, eight workers, against one", "memory",
        f"{ratio:.2f}x ({_told(eight)})", "≤ 1.15x", ratio <= 1.15,
    )  # fmt: skip


def idle_figures(plan: Plan) -> Iterator[Figure]:
    """What a worker costs that has nothing to do."""
    world = World()
    idler = Idler(world)
    asked = idler.priced_within(DAY_SECONDS)
    yield Figure(
        "idle worker on a bucket, priced requests a day", "memory", f"{asked:,}", "≤ 3,000",
        asked <= 3_000,
    )  # fmt: skip


def _requests_per_task(workers: int) -> dict[str, float]:
    world = World()
    world.fill(TASKS)
    work_through(world, workers, step_seconds=0.1)
    return {kind: count / TASKS for kind, count in world.store.requests.snapshot().items()}


def _priced(requests: dict[str, float]) -> float:
    return requests["put"] + requests["get"] + requests["list"]


def _told(requests: dict[str, float]) -> str:
    return f"{requests['put']:.3f} PUT, {requests['get']:.3f} GET, {requests['list']:.3f} LIST"


FIGURES = (task_figures, idle_figures)
