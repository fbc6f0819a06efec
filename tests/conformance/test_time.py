"""Delays and times to live."""

from __future__ import annotations

import pytest

from dfq import Filter


def test_a_delayed_task_is_not_claimed_before_its_time(queue, clock):
    queue.push(1, id="a", delay=10)
    assert queue.get("a").state == "delayed"
    assert queue.claim("w") is None
    clock.advance(9.5)
    assert queue.claim("w") is None
    clock.advance(1)
    assert queue.get("a").state == "ready"
    assert queue.claim("w").task_id == "a"


def test_delays_end_in_the_order_of_their_times(queue, clock):
    for seconds in (30, 10, 20):
        queue.push(1, id=f"t{seconds}", delay=seconds)
    order = []
    for _ in range(3):
        clock.advance(10.1)
        order.append(queue.claim("w").task_id)
        assert queue.claim("w") is None
    assert order == ["t10", "t20", "t30"]


def test_a_time_in_the_past_is_no_delay(queue, clock):
    queue.push(1, id="a", not_before=clock.wall() - 100)
    queue.push(1, id="b", delay=0)
    assert queue.stats().ready == 2
    assert len(queue.claim_many(2, "w")) == 2


def test_a_delayed_task_keeps_its_priority(queue, clock):
    queue.push(1, id="later", priority="critical", delay=10)
    queue.push(1, id="now", priority="low")
    clock.advance(11)
    assert queue.claim("w").task_id == "later"


def test_a_delayed_task_is_seen_by_filters_when_its_time_has_come(queue, clock):
    queue.push(1, id="a", project="p", delay=10)
    queue.push(1, id="b", project="q")
    wanted = Filter(project="p")
    assert queue.claim("w", filter=wanted) is None
    clock.advance(11)
    assert queue.claim("w", filter=wanted).task_id == "a"


def test_a_task_nobody_claimed_within_its_time_to_live_fails_as_expired(queue, clock):
    queue.push(1, id="a", ttl=60)
    clock.advance(61)
    assert queue.claim("w") is None
    queue.sweep()
    record = queue.get("a")
    assert record.state == "failed"
    assert record.task.errors[-1].kind == "expired"
    assert record.task.attempts == 0


def test_a_task_claimed_within_its_time_to_live_runs_on(queue, clock):
    queue.push(1, id="a", ttl=60)
    clock.advance(59)
    lease = queue.claim("w")
    clock.advance(10)
    queue.sweep()
    queue.ack(lease)
    assert queue.get("a").state == "completed"


def test_a_task_given_back_after_its_time_to_live_is_not_tried_again(queue, clock):
    queue.push(1, id="a", ttl=60)
    lease = queue.claim("w")
    clock.advance(61)
    queue.nack(lease, "no", delay=0)
    assert queue.claim("w") is None
    queue.sweep()
    record = queue.get("a")
    assert record.state == "failed"
    assert [error.kind for error in record.task.errors] == ["error", "expired"]


@pytest.mark.parametrize("options", [{"delay": 100}, {"depends_on": ["nobody"]}], ids=repr)
def test_a_task_that_is_not_ready_expires_too(queue, clock, options):
    queue.push(1, id="a", ttl=60, **options)
    clock.advance(61)
    queue.sweep()
    assert queue.get("a").state == "failed"
    assert queue.get("a").task.errors[-1].kind == "expired"


def test_expired_tasks_do_not_stand_in_the_way(queue, clock):
    for i in range(5):
        queue.push(1, id=f"old{i}", ttl=10, priority="critical")
    clock.advance(11)
    queue.push(1, id="new", priority="low")
    assert queue.claim("w").task_id == "new"
    assert queue.claim("w") is None


def test_an_expired_task_that_is_requeued_gets_to_run(queue, clock):
    queue.push(1, id="a", ttl=60)
    clock.advance(61)
    queue.sweep()
    queue.requeue("a")
    assert queue.claim("w").task_id == "a"
