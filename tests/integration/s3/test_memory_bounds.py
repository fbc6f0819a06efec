"""What a handle remembers of a queue is bounded, however much is pending."""

from __future__ import annotations

import pytest

from dfq.engines.s3 import census, sweeping
from dfq.engines.s3.view import Sighting
from tests.integration.s3.counted import World

TASKS = 200


@pytest.fixture
def world() -> World:
    return World()


def count_gets(world, verb):
    before = world.store.requests.snapshot()
    verb()
    return world.counted_since(before)["get"]


def test_a_count_keeps_no_more_tasks_than_it_may_and_counts_all(world, monkeypatch):
    monkeypatch.setattr(census, "KEPT_TASKS", 50)
    world.fill(TASKS)
    queue = world.open()
    for _ in range(3):
        assert queue.stats().ready == TASKS
        assert len(queue._looking._counting._kept) == 50
    # What is kept is not read again.
    assert count_gets(world, lambda: list(queue.list("ready"))) == TASKS - 50


def test_a_count_keeps_no_more_bytes_than_it_may(world, monkeypatch):
    monkeypatch.setattr(census, "KEPT_BYTES", 100_000)
    queue = world.open()
    queue.push_many(
        [queue.new_task("x" * 10_000, id=f"large-{n}") for n in range(50)]
        + [queue.new_task("x", id=f"small-{n}") for n in range(50)]
    )
    counting = queue._looking._counting
    for _ in range(3):
        assert len(list(queue.list("ready"))) == 100
        assert sum(one.size for one in counting._kept.values()) == counting._bytes <= 100_000
    queue.purge()
    assert queue.stats().ready == 0
    assert (counting._kept, counting._bytes) == ({}, 0)


def test_a_changed_task_takes_the_place_of_what_was_kept_of_it(world):
    queue = world.open()
    queue.push(1, id="t")
    counting = queue._looking._counting
    for _ in range(5):
        queue.stats()
        queue.nack(queue.claim(), "no", delay=0)
        assert next(iter(queue.list())).task.attempts >= 1
        assert len(counting._kept) == 1
        assert sum(one.size for one in counting._kept.values()) == counting._bytes


def test_a_sweep_remembers_no_more_tasks_than_it_may(world, monkeypatch):
    monkeypatch.setattr(sweeping, "_REMEMBERED", 50)
    world.fill(TASKS)
    queue = world.open()
    queue.sweep()
    assert len(queue._sweeping._waiting) == 50
    assert count_gets(world, queue.sweep) == TASKS - 50
    queue.purge()
    queue.sweep()
    assert queue._sweeping._waiting == {}


def test_what_a_claim_remembers_of_a_task_carries_no_payload(world):
    queue = world.open()
    queue.push("x" * 100_000, id="t", delay=1_000)
    assert queue.claim() is None
    place = queue._bucket.read_task("t", "pending/e3/t").place
    known = queue._claiming.view.remembered(Sighting("t", place))
    assert known.checked.not_before is not None
    assert "payload" not in known.fields
    world.clock.advance(1_001)
    assert queue.claim().task.payload == "x" * 100_000
