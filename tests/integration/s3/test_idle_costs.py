"""What a worker that has nothing to do costs in a day, whatever keeps it from working."""

from __future__ import annotations

import pytest

from dfq import Filter
from tests.integration.s3.counted import (
    DAY_SECONDS,
    HOUR_SECONDS,
    Idler,
    Sleeper,
    World,
    intake_of,
)

#: $0.50 a month.
DAILY = 3_000


@pytest.fixture
def world() -> World:
    return World()


def test_an_idle_worker_costs_at_most_3000_priced_requests_a_day(world):
    assert 1_000 < Idler(world, Filter()).priced_within(DAY_SECONDS) <= DAILY


def test_an_idle_worker_among_tasks_of_others_costs_no_more(world):
    world.fill(300, name="not-ours")
    idler = Idler(world, Filter(names=("ours",)))
    # To learn the names it reads every task: to find its own, to sweep, and to say why it idles.
    assert 300 <= idler.priced_within(HOUR_SECONDS) <= 1_500
    assert 1_000 < idler.priced_within(DAY_SECONDS) <= DAILY


def test_a_paused_queue_is_looked_at_no_more_often(world):
    world.fill(10)
    world.open().pause("until tomorrow")
    assert Idler(world, Filter()).priced_within(DAY_SECONDS) <= DAILY


@pytest.mark.parametrize("names", ["one", "each its own"])
@pytest.mark.parametrize("how", ["failed", "unknown"])
def test_tasks_whose_dependency_never_comes_cost_no_more(world, how, names):
    queue = world.open()
    dependencies = [f"dep-{n if names != 'one' else 0}" for n in range(50)]
    if how == "failed":
        for task_id in sorted(set(dependencies)):
            queue.push(1, id=task_id)
            queue.cancel(task_id)
    for n, dependency in enumerate(dependencies):
        queue.push(n, depends_on=[dependency])
    idler = Idler(world)
    idler.priced_within(HOUR_SECONDS)
    assert idler.priced_within(DAY_SECONDS) <= DAILY


def idle_beside_a_holder(world: World, seconds: float, **options: object) -> dict[str, int]:
    """What a worker asks for that waits beside another that holds 50 leases and keeps them."""
    world.fill(50)
    holder = world.open()
    held = holder.claim_many(50, "holder", lease_seconds=600)
    assert len(held) == 50
    intake = intake_of(world.open(Sleeper), **options)
    asked = dict.fromkeys(("put", "get", "list", "delete"), 0)
    until = world.clock.boot() + seconds
    beat_at = world.clock.boot()
    while world.clock.boot() < until:
        if world.clock.boot() >= beat_at:
            held = holder.heartbeat_many(held)
            beat_at += 60
        before = world.store.requests.snapshot()
        assert intake.take(1) == []
        assert intake.ended is None
        for kind, count in world.counted_since(before).items():
            asked[kind] += count
    return asked


@pytest.mark.parametrize("drain", [False, True])
def test_long_leases_of_another_worker_cost_no_more(world, drain):
    asked = idle_beside_a_holder(world, DAY_SECONDS, drain=drain)
    # Once each lease and each task of it is read.
    assert asked["put"] + asked["get"] + asked["list"] <= DAILY + 150


def test_a_drain_ends_when_the_other_worker_is_done(world):
    world.fill(1)
    holder = world.open()
    lease = holder.claim("holder", lease_seconds=1e6)
    intake = intake_of(world.open(Sleeper), drain=True)
    until = world.clock.boot() + HOUR_SECONDS
    while world.clock.boot() < until:
        assert intake.take(1) == []
    assert intake.ended is None
    holder.ack(lease)
    done_at = world.clock.boot()
    while intake.ended is None and world.clock.boot() < until + HOUR_SECONDS:
        intake.take(1)
    assert intake.ended == "drained"
    assert world.clock.boot() - done_at <= 60


def test_a_sweep_that_drops_old_records_reads_none_of_them(world):
    queue = world.open(finished="drop", finished_after_seconds=DAY_SECONDS)
    for n in range(20):
        queue.push(n)
        queue.ack(queue.claim())
        world.clock.advance(200)
        queue.sweep()
    assert len(world.store.list("completed/").entries) == 20
    fresh = world.open(finished="drop", finished_after_seconds=DAY_SECONDS)
    before = world.store.requests.snapshot()
    assert fresh.sweep().dropped == 0
    assert world.counted_since(before) == {"put": 0, "get": 0, "list": 2, "delete": 0}
    world.clock.advance(DAY_SECONDS - 1_000)
    before = world.store.requests.snapshot()
    assert fresh.sweep().dropped == 15
    assert world.counted_since(before)["get"] == 0
    world.clock.advance(DAY_SECONDS)
    assert fresh.sweep().dropped == 5
    assert world.store.list("completed/").entries == ()
