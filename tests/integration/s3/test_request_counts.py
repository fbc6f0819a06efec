"""What a queue in a bucket asks of it, counted. A store in memory counts as S3 bills."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dfq import Lease
from dfq.engines.s3.queue import S3Queue
from tests.integration.s3.counted import World, intake_of, work_through

TASKS = 1_000


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


def test_the_first_task_comes_before_a_look_into_any_other(world):
    world.fill(TASKS)
    before = world.store.requests.snapshot()
    assert len(intake_of(world.open()).take(1)) == 1
    counts = world.counted_since(before)
    # queue.json, and the task.
    assert (counts["put"], counts["get"]) == (1, 2)
    assert counts["list"] <= 2


@pytest.mark.parametrize("step_seconds", [0.005, 0.1])
def test_a_worker_pays_no_more_for_a_task_sweeps_and_all(world, step_seconds):
    world.fill(TASKS)
    started = world.clock.boot()
    work_through(world, 1, step_seconds)
    counts = world.store.requests.snapshot()
    assert world.open().stats().completed == TASKS
    pauses = (world.clock.boot() - started) / 10
    # A hundred records become one object, and what a worker did is told once in a while.
    assert counts["put"] <= 3.02 * TASKS
    # Each handle reads queue.json, and a busy worker looks every 10 s for a pause.
    assert counts["get"] <= TASKS + 5 + pauses
    assert counts["list"] <= 0.02 * TASKS


@pytest.mark.parametrize("step_seconds", [0.005, 0.1])
def test_eight_real_workers_cost_at_most_15_percent_more_than_one(step_seconds):
    priced = {}
    for workers in (1, 8):
        world = World()
        world.fill(TASKS)
        sweep(world, work_through(world, workers, step_seconds))
        priced[workers] = world.priced()
        assert world.open().stats().completed == TASKS
    assert priced[8] <= 1.15 * priced[1], priced


def test_a_sweep_of_a_busy_worker_reads_no_task_that_waits(world):
    world.fill(TASKS)
    queue = world.open()
    queue.ack(queue.claim())
    before = world.store.requests.snapshot()
    queue.sweep()
    assert world.counted_since(before)["get"] == 0


def test_a_sweep_reads_each_task_that_waits_once(world):
    world.fill(TASKS)
    queue = world.open()
    before = world.store.requests.snapshot()
    queue.sweep()
    queue.sweep()
    assert world.counted_since(before)["get"] == TASKS


def test_a_count_reads_each_task_once(world):
    world.fill(TASKS)
    queue = world.open()
    before = world.store.requests.snapshot()
    for _ in range(2):
        assert queue.stats().ready == TASKS
    # And each time whether it is paused.
    assert world.counted_since(before)["get"] == TASKS + 2


def test_a_sweep_of_a_small_queue_is_one_listing(world):
    world.fill(3)
    world.open().pause()
    queue = world.open()
    queue.sweep()
    before = world.store.requests.snapshot()
    queue.sweep()
    assert world.counted_since(before) == {"put": 0, "get": 0, "list": 1, "delete": 0}
