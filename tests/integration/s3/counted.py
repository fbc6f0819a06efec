"""A bucket in memory that counts requests as S3 bills them, and workers on it without threads."""

from __future__ import annotations

from typing import Any

from dfq import Filter, Lease
from dfq.engines.s3.queue import S3Queue
from dfq.policy import Policy
from dfq.record import EVERYTHING
from dfq.stores.memory import MemoryStore
from dfq.testing import FakeClock, SeededChance
from dfq.worker.intake import Intake
from dfq.worker.options import WorkerOptions

DAY_SECONDS = 86_400.0
HOUR_SECONDS = 3_600.0


class World:
    """One bucket, its clock, and handles on a queue in it as workers have them."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore(clock=self.clock)
        self._handles = 0

    def open(self, kind: type[S3Queue] = S3Queue, parallel: int = 1, **policy: Any) -> S3Queue:
        self._handles += 1
        return kind(
            self.store,
            clock=self.clock,
            chance=SeededChance(self._handles),
            policy=Policy(**policy) if policy else None,
            parallel=parallel,
            certified=True,
        )

    def fill(self, count: int, **options: object) -> None:
        queue = self.open()
        queue.push_many([queue.new_task({"n": n}, **options) for n in range(count)])

    def priced(self) -> int:
        counts = self.store.requests.snapshot()
        return counts["put"] + counts["get"] + counts["list"]

    def counted_since(self, before: dict[str, int]) -> dict[str, int]:
        """The requests of each kind since that snapshot."""
        now = self.store.requests.snapshot()
        return {kind: now[kind] - before[kind] for kind in now}


class Sleeper(S3Queue):
    """A handle that passes its waits by turning the clock on."""

    def wait(self, timeout_seconds: float) -> bool:
        due_seconds = self._idling.due_seconds()
        self._bucket.own_clock.advance(min(due_seconds, timeout_seconds))
        return due_seconds <= timeout_seconds


def intake_of(queue: S3Queue, wanted: Filter = EVERYTHING, **options: Any) -> Intake:
    """What a worker has of a queue: where its tasks come from, sweeps and all."""
    return Intake(
        queue,
        "worker",
        wanted,
        WorkerOptions(**options),
        on_poll=lambda: None,
        on_remaining=lambda _: None,
    )


def work_through(world: World, workers: int, step_seconds: float) -> list[S3Queue]:
    """What real workers do, in turns, until each has found that there is no more."""
    handles = [world.open(Sleeper) for _ in range(workers)]
    intakes = [intake_of(handle) for handle in handles]
    held: list[Lease | None] = [None] * workers
    idle = [False] * workers
    while not all(idle):
        for number, lease in enumerate(held):
            if lease is not None:
                handles[number].ack(lease)
                held[number] = None
            elif not idle[number]:
                held[number] = next(iter(intakes[number].take(1)), None)
                idle[number] = held[number] is None
        world.clock.advance(step_seconds)
    return handles


class Idler:
    """A worker's intake that has nothing to do, sweeps included."""

    def __init__(self, world: World, wanted: Filter = EVERYTHING, **options: Any) -> None:
        self._world = world
        self._intake = intake_of(world.open(Sleeper), wanted, **options)

    def priced_within(self, seconds: float) -> int:
        """What so long a time of it costs."""
        before = self._world.priced()
        until = self._world.clock.boot() + seconds
        while self._world.clock.boot() < until:
            assert self._intake.take(1) == []
            assert self._intake.ended is None
        return self._world.priced() - before

    def next_task(self, within_seconds: float) -> Lease:
        """The task that ends its idling."""
        until = self._world.clock.boot() + within_seconds
        while self._world.clock.boot() < until:
            for lease in self._intake.take(1):
                return lease
        raise AssertionError(f"nothing came within {within_seconds:g} s")
