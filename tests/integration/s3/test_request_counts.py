"""What a queue in a bucket asks of it, counted. A store in memory counts as S3 bills."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dfq import Filter, Lease
from dfq.engines.s3.queue import S3Queue
from dfq.stores.memory import MemoryStore
from dfq.testing import FakeClock, SeededChance
from dfq.worker.intake import Intake
from dfq.worker.options import WorkerOptions

TASKS = 1_000
DAY_SECONDS = 86_400.0
HOUR_SECONDS = 3_600.0


class World:
    """One bucket, its clock, and handles on a queue in it as workers have them."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore(clock=self.clock)
        self._handles = 0

    def open(self, kind: type[S3Queue] = S3Queue) -> S3Queue:
        self._handles += 1
        chance = SeededChance(self._handles)
        return kind(self.store, clock=self.clock, chance=chance, parallel=1, certified=True)

    def fill(self, count: int, **options: object) -> None:
        queue = self.open()
        queue.push_many([queue.new_task({"n": n}, **options) for n in range(count)])

    def priced(self) -> int:
        counts = self.store.requests.snapshot()
        return counts["put"] + counts["get"] + counts["list"]


class Sleeper(S3Queue):
    """A handle that passes its waits by turning the clock on."""

    def wait(self, timeout_seconds: float) -> bool:
        due_seconds = self._idling.due_seconds()
        self._bucket.own_clock.advance(min(due_seconds, timeout_seconds))
        return due_seconds <= timeout_seconds


@pytest.fixture
def world() -> World:
    return World()


def work(queue: S3Queue, name: str) -> Iterator[Lease | None]:
    """A worker in single steps: a claim, an ack, and so on until there is nothing to claim."""
    while (lease := queue.claim(name)) is not None:
        yield lease
        queue.ack(lease)
        yield None


def drain(world: World, workers: int, step_seconds: float) -> list[S3Queue]:
    """Let so many workers take turns until all is done."""
    handles = [world.open() for _ in range(workers)]
    busy = [work(queue, f"worker-{number}") for number, queue in enumerate(handles)]
    while busy:
        busy = [one for one in busy if next(one, "over") != "over"]
        world.clock.advance(step_seconds)
    return handles


def sweep(world: World, handles: list[S3Queue]) -> None:
    """What workers do every quarter of an hour, done once by each."""
    world.clock.advance(900)
    for queue in handles:
        queue.sweep()


def test_a_task_costs_three_puts_and_one_get_from_push_to_ack(world):
    world.fill(TASKS)
    drain(world, 1, step_seconds=0.005)
    counts = world.store.requests.snapshot()
    assert counts["put"] == 3 * TASKS
    # Each of the two handles reads queue.json once, and a worker looks every 10 s for a pause.
    assert counts["get"] <= TASKS + 2 + 1
    assert counts["list"] <= 0.02 * TASKS


def test_folding_records_takes_one_put_for_a_hundred_tasks(world):
    world.fill(TASKS)
    handles = drain(world, 1, step_seconds=0.1)
    sweep(world, handles)
    counts = world.store.requests.snapshot()
    assert world.store.list("pending/").entries == ()
    # And one to tell what the worker did, for `dfq stats --cost`.
    assert counts["put"] == 3 * TASKS + TASKS / 100 + 1
    assert counts["get"] <= 1.03 * TASKS
    assert counts["list"] <= 0.02 * TASKS


@pytest.mark.parametrize("step_seconds", [0.01, 0.5])
def test_eight_workers_cost_at_most_15_percent_more_than_one(step_seconds):
    priced = {}
    for workers in (1, 8):
        world = World()
        world.fill(TASKS)
        sweep(world, drain(world, workers, step_seconds))
        assert len(list(world.open().list("completed"))) == TASKS
        priced[workers] = world.priced()
    assert priced[8] <= 1.15 * priced[1], priced


@pytest.mark.parametrize("leases", [1, 10, 100])
def test_a_minute_of_heartbeats_is_one_put_however_many_leases_there_are(world, leases):
    world.fill(leases)
    queue = world.open()
    held: list[Lease] = queue.claim_many(leases, "worker")
    assert len(held) == leases
    before = world.store.requests.snapshot()["put"]
    for _ in range(60):
        world.clock.advance(queue.policy.heartbeat_seconds)
        answers = queue.heartbeat_many(held)
        assert all(isinstance(answer, Lease) for answer in answers)
        held = [answer for answer in answers if isinstance(answer, Lease)]
    assert world.store.requests.snapshot()["put"] - before == 60


class Idler:
    """A worker's intake that has nothing to do, sweeps included."""

    def __init__(self, world: World, wanted: Filter) -> None:
        self._world = world
        self._intake = Intake(
            world.open(Sleeper),
            "idle",
            wanted,
            WorkerOptions(),
            on_poll=lambda: None,
            on_remaining=lambda _: None,
        )

    def priced_within(self, seconds: float) -> int:
        """What so long a time of it costs."""
        before = self._world.priced()
        until = self._world.clock.boot() + seconds
        while self._world.clock.boot() < until:
            assert self._intake.take(1) == []
            assert self._intake.ended is None
        return self._world.priced() - before


def test_an_idle_worker_costs_at_most_3000_priced_requests_a_day(world):
    assert 1_000 < Idler(world, Filter()).priced_within(DAY_SECONDS) <= 3_000


def test_an_idle_worker_among_tasks_of_others_costs_no_more(world):
    world.fill(300, name="not-ours")
    idler = Idler(world, Filter(names=("ours",)))
    # To learn the names it reads every task: to find its own, to sweep, and to say why it idles.
    assert 300 <= idler.priced_within(HOUR_SECONDS) <= 1_500
    assert 1_000 < idler.priced_within(DAY_SECONDS) <= 3_000


def test_a_paused_queue_is_looked_at_no_more_often(world):
    world.fill(10)
    world.open().pause("until tomorrow")
    assert Idler(world, Filter()).priced_within(DAY_SECONDS) <= 3_000
