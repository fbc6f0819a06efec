"""Finding tasks, as a worker is shipped: it looks again after a minute, or when nothing is left."""

from __future__ import annotations

import json

import pytest

from dfq import Filter
from dfq.engines.s3.keys import PAUSED, shard_of
from tests.integration.s3.counted import Idler, World

#: More objects than one page of a listing shows.
MANY = 1_500


@pytest.fixture
def world() -> World:
    return World()


def work_off(world, queue, limit=10_000):
    done = []
    while len(done) < limit and (lease := queue.claim("worker")) is not None:
        queue.ack(lease)
        done.append(lease.task_id)
        world.clock.advance(0.01)
    return done


def put_bare(world, shard, task_id):
    world.store.put(f"pending/{shard}/{task_id}/task.json", json.dumps({"n": 1}).encode())


@pytest.mark.parametrize("seed", range(4))
def test_the_tail_beyond_the_first_page_is_reached(world, seed):
    for _ in range(seed):
        world.open()
    queue = world.open()
    queue.push_many([queue.new_task(n, id=f"t{n}") for n in range(MANY)])
    assert sorted(work_off(world, world.open())) == sorted(f"t{n}" for n in range(MANY))


def test_the_tail_is_reached_while_all_before_it_is_held(world):
    world.fill(MANY)
    holder = world.open()
    held = holder.claim_many(MANY - 1, "holder", lease_seconds=1e6)
    assert len(held) == MANY - 1
    (left,) = {record.task.id for record in holder.list("ready")}
    assert world.open().claim("worker").task_id == left


def test_the_tail_is_reached_behind_tasks_that_are_not_wanted(world):
    world.fill(MANY, name="theirs")
    last = max((f"x{n}" for n in range(MANY)), key=shard_of)
    queue = world.open()
    queue.push(1, id=last, name="ours")
    assert world.open().claim("worker", filter=Filter(names=("ours",))).task_id == last


@pytest.mark.parametrize("large", [False, True])
def test_shards_of_any_name_are_seen(world, large):
    if large:
        world.fill(MANY, priority="low")
    shards = ("00", "ff", "zz", "FF", "~", "a-long-name", "by.hand", "0", "=")
    for number, shard in enumerate(shards):
        put_bare(world, shard, f"bare-{number}")
    world.store.put("pending/without-a-shard/task.json", b"1")
    wanted = {f"bare-{number}" for number in range(len(shards))} | {"without-a-shard"}
    done = set(work_off(world, world.open()))
    assert wanted <= done
    assert len(done) == len(wanted) + (MANY if large else 0)


def test_all_tasks_in_one_shard_are_found(world):
    for number in range(MANY):
        put_bare(world, "7f", f"bare-{number}")
    assert len(work_off(world, world.open())) == MANY


@pytest.mark.parametrize("seed", range(8))
def test_empty_shards_never_starve_a_busy_queue(world, seed):
    """Wherever a look begins, the next claim finds what there is."""
    for _ in range(seed):
        world.open()
    for number in range(MANY):
        put_bare(world, "03", f"bare-{number}")
    queue = world.open()
    for _ in range(200):
        assert queue.claim("worker") is not None
        world.clock.advance(61)


def test_what_is_pushed_to_a_busy_queue_is_found_within_the_round(world):
    world.fill(MANY)
    queue = world.open()
    work_off(world, queue, 100)
    put_bare(world, "zz", "late")
    assert "late" in work_off(world, queue)


@pytest.mark.parametrize("marks", [999, 1_000, 1_001, 2_500])
def test_a_pause_is_seen_behind_any_number_of_marks_of_priority(world, marks):
    world.fill(marks, priority="high")
    working = world.open()
    assert working.claim("worker") is not None
    world.open().pause("stop")
    assert world.open().claim_many(5) == []
    world.clock.advance(11)
    for _ in range(700):
        assert working.claim("worker") is None
        world.clock.advance(1)
    world.open().resume()
    assert world.open().claim("worker") is not None


def test_a_pause_is_seen_behind_objects_of_somebody_else(world):
    for number in range(MANY):
        world.store.put(f"notes/{number:05d}", b"not yours")
    assert max(f"notes/{MANY}", PAUSED) == PAUSED
    world.fill(1)
    world.open().pause("stop")
    assert world.open().claim() is None
    world.open().resume()
    assert world.open().claim() is not None


def test_more_marks_of_priority_than_a_page_shows_are_obeyed(world):
    world.fill(MANY)
    queue = world.open()
    queue.push_many([queue.new_task(n, id=f"urgent-{n}", priority="high") for n in range(MANY)])
    done = work_off(world, world.open(), MANY)
    assert all(task_id.startswith("urgent-") for task_id in done)


def test_an_idle_worker_finds_what_is_put_there_by_hand(world):
    idler = Idler(world)
    idler.priced_within(3_600)
    put_bare(world, "zz", "by-hand")
    put_at = world.clock.boot()
    assert idler.next_task(within_seconds=120).task_id == "by-hand"
    assert world.clock.boot() - put_at <= 45
