"""A task whose dependency was found wanting comes when it is met, though nobody keeps asking."""

from __future__ import annotations

import pytest

from tests.integration.s3.counted import HOUR_SECONDS, Idler, World

#: An idle worker's pause, and a little.
NEXT_LOOK = 60.0


@pytest.fixture
def world() -> World:
    return World()


def blocked(world, dependency="dep"):
    """A worker that has looked for hours at a task that waits."""
    world.open().push("blocked", id="blocked", depends_on=[dependency])
    idler = Idler(world)
    idler.priced_within(3 * HOUR_SECONDS)
    return idler


def complete(world, task_id):
    queue = world.open()
    lease = queue.claim("other")
    assert lease.task_id == task_id
    queue.ack(lease)
    return queue


def test_one_that_failed_is_requeued_and_completed_elsewhere(world):
    queue = world.open()
    queue.push(1, id="dep")
    queue.cancel("dep")
    idler = blocked(world)
    queue.requeue("dep")
    complete(world, "dep")
    assert idler.next_task(NEXT_LOOK).task_id == "blocked"


def test_one_that_nobody_knew_is_pushed_and_completed_elsewhere(world):
    idler = blocked(world)
    world.open().push(1, id="dep")
    complete(world, "dep")
    assert idler.next_task(NEXT_LOOK).task_id == "blocked"


def test_one_that_the_same_worker_completes(world):
    world.open().push(1, id="dep", delay=10)
    queue = world.open()
    queue.push("blocked", id="blocked", depends_on=["dep"])
    assert queue.claim() is None
    world.clock.advance(11)
    queue.ack(queue.claim())
    assert queue.claim().task_id == "blocked"


@pytest.mark.parametrize("tasks", [0, 1_500])
def test_one_whose_completion_nobody_saw_is_looked_up_in_time(world, tasks):
    world.fill(tasks, name="theirs", delay=1e7)
    worker = world.open()
    worker.push("blocked", id="blocked", depends_on=["dep"])
    assert worker.claim() is None
    world.open().push(1, id="dep")
    other = complete(world, "dep")
    # It is folded before the worker looks again.
    world.clock.advance(300)
    other.sweep()
    claimed = None
    for _ in range(30):
        world.clock.advance(60)
        claimed = claimed or worker.claim()
    assert claimed is not None and claimed.task_id == "blocked"


def test_one_in_a_large_queue_is_seen_before_long(world):
    world.fill(1_500, delay=1e7)
    worker = world.open()
    worker.push("blocked", id="blocked", depends_on=["dep"])
    assert worker.claim() is None
    world.open().push(1, id="dep")
    complete(world, "dep")
    claimed = None
    for _ in range(20):
        world.clock.advance(6)
        claimed = claimed or worker.claim()
    assert claimed is not None and claimed.task_id == "blocked"
