"""requeue, cancel, bury by id, pause, purge, saved state."""

from __future__ import annotations

import pytest

from dfq import InvalidTask, LeaseLost, TaskNotFound, WrongState


def push_failed(queue, task_id="a"):
    queue.push(1, id=task_id, max_attempts=2)
    queue.nack(queue.claim("w"), "first", delay=0)
    queue.nack(queue.claim("w"), "second", delay=0)
    assert queue.get(task_id).state == "failed"


def test_a_requeued_task_has_its_attempts_back_and_keeps_its_history(queue):
    push_failed(queue)
    queue.requeue("a")
    record = queue.get("a")
    assert (record.state, record.task.attempts, record.finished_at) == ("ready", 0, None)
    assert [error.message for error in record.task.errors] == ["first", "second"]
    lease = queue.claim("w")
    assert (lease.attempt, lease.task.correlation_id) == (1, record.task.correlation_id)
    queue.ack(lease, "at last")
    assert queue.get("a").result == "at last"


def test_a_requeued_task_fails_again_after_as_many_attempts(queue):
    push_failed(queue)
    queue.requeue("a")
    queue.nack(queue.claim("w"), "third", delay=0)
    assert queue.get("a").state == "ready"
    queue.nack(queue.claim("w"), "fourth", delay=0)
    assert queue.get("a").state == "failed"
    assert len(queue.get("a").task.errors) == 4


def test_only_a_failed_task_can_be_requeued(queue):
    queue.push(1, id="done", priority=9)
    queue.ack(queue.claim("w"), "out")
    queue.push(1, id="held", priority=9)
    queue.claim("w")
    queue.push(1, id="ready")
    for task_id in ("done", "held", "ready"):
        before = queue.get(task_id)
        with pytest.raises(WrongState, match=task_id):
            queue.requeue(task_id)
        assert queue.get(task_id) == before


@pytest.mark.parametrize("verb", ["requeue", "cancel", "bury"])
def test_a_task_that_is_not_there_can_not_be_moved(queue, verb):
    with pytest.raises(TaskNotFound, match="nobody"):
        getattr(queue, verb)("nobody")


@pytest.mark.parametrize("verb", ["get", "load_state", "requeue", "cancel", "bury"])
def test_a_name_that_is_no_id_is_refused(queue, verb):
    with pytest.raises(InvalidTask):
        getattr(queue, verb)("../queue.json")


@pytest.mark.parametrize("options", [{}, {"delay": 60}, {"depends_on": ["x"]}], ids=repr)
def test_a_pending_task_can_be_cancelled(queue, options):
    queue.push(1, id="a", **options)
    queue.cancel("a", "not needed")
    record = queue.get("a")
    assert record.state == "failed"
    assert (record.task.errors[-1].kind, record.task.errors[-1].message) == (
        "cancelled",
        "not needed",
    )
    assert queue.claim("w") is None


def test_a_cancelled_task_does_not_come_back_when_its_delay_or_its_life_ends(queue, clock):
    queue.push(1, id="a", delay=10, ttl=20)
    queue.cancel("a")
    before = queue.get("a")
    for _ in range(2):
        clock.advance(15)
        assert queue.claim("w") is None
        queue.sweep()
    assert queue.get("a") == before


def test_cancelling_a_held_task_takes_it_from_its_holder(queue, settle):
    queue.push(1, id="a")
    lease = queue.claim("w")
    queue.cancel("a", "stop")
    before = queue.get("a")
    assert before.state == "failed"
    for verb in ("heartbeat", "ack", "nack", "release", "bury", "save_state"):
        with pytest.raises(LeaseLost):
            settle(verb, queue, lease)
    assert queue.get("a") == before
    assert queue.leases() == []


def test_cancelling_a_held_task_counts_its_delivery_as_an_attempt(queue):
    queue.push(1, id="a")
    queue.nack(queue.claim("w"), "first", delay=0)
    lease = queue.claim("w")
    queue.cancel("a", "stop")
    task = queue.get("a").task
    assert (lease.attempt, task.attempts) == (2, 2)
    assert [(e.kind, e.attempt, e.fence) for e in task.errors] == [
        ("error", 1, 1),
        ("cancelled", 2, lease.fence),
    ]


def test_cancelling_a_task_that_nobody_holds_counts_no_attempt(queue):
    queue.push(1, id="a")
    queue.nack(queue.claim("w"), "first", delay=0)
    queue.cancel("a", "stop")
    assert queue.get("a").task.attempts == 1


def test_a_finished_task_can_not_be_cancelled_or_buried(queue):
    queue.push(1, id="done")
    queue.ack(queue.claim("w"))
    queue.push(1, id="failed")
    queue.cancel("failed", "once")
    for task_id in ("done", "failed"):
        before = queue.get(task_id)
        for verb in (queue.cancel, queue.bury):
            with pytest.raises(WrongState, match=task_id):
                verb(task_id, "again")
        assert queue.get(task_id) == before


def test_a_task_that_nobody_holds_can_be_buried_by_id(queue):
    queue.push(1, id="a")
    queue.bury("a", "wrong data")
    record = queue.get("a")
    assert record.state == "failed"
    error = record.task.errors[-1]
    assert (error.kind, error.message, error.worker_id) == ("buried", "wrong data", None)
    queue.requeue("a")
    assert queue.claim("w").task_id == "a"


def test_a_held_task_can_not_be_buried_by_id(queue):
    queue.push(1, id="a")
    lease = queue.claim("w")
    with pytest.raises(WrongState, match="w"):
        queue.bury("a")
    queue.ack(lease)


def test_a_paused_queue_hands_out_nothing_to_anybody(engine, queue):
    queue.push(1, id="held", priority=9)
    lease = queue.claim("w")
    queue.push(1, id="waiting")
    queue.pause("maintenance")
    other = engine.reopen()
    assert queue.stats().paused
    assert other.stats().paused
    assert queue.claim("w") is None
    assert other.claim_many(5, "w") == []
    queue.ack(queue.heartbeat(lease), "running tasks finish")
    queue.push(1, id="pushed meanwhile".replace(" ", "-"))
    assert queue.stats().ready == 2
    other.resume()
    assert not queue.stats().paused
    assert len(queue.claim_many(5, "w")) == 2


def test_pausing_and_resuming_twice_is_the_same_as_once(queue):
    queue.resume()
    queue.push(1)
    queue.pause()
    queue.pause("again")
    queue.resume()
    queue.resume()
    assert queue.claim("w") is not None


def test_purging_all_spares_what_is_leased(queue):
    queue.push(1, id="held", priority=9)
    lease = queue.claim("w")
    push_failed(queue, "failed")
    queue.push(1, id="done", priority=9)
    queue.ack(queue.claim("w"))
    queue.push(1, id="ready")
    queue.push(1, id="later", delay=60)
    queue.push(1, id="blocked", depends_on=["ready"])
    assert queue.purge() == 5
    assert [record.task.id for record in queue.list()] == ["held"]
    queue.ack(lease)


@pytest.mark.parametrize("state", ["ready", "delayed", "blocked", "leased", "completed", "failed"])
def test_purging_a_state_leaves_the_others(queue, state):
    queue.push(1, id="completed-1")
    queue.ack(queue.claim("w"))
    push_failed(queue, "failed-1")
    queue.push(1, id="leased-1")
    lease = queue.claim("w")
    queue.push(1, id="ready-1")
    queue.push(1, id="delayed-1", delay=60)
    queue.push(1, id="blocked-1", depends_on=["nobody"])
    assert queue.purge(state) == 1
    assert queue.get(f"{state}-1") is None
    assert len(list(queue.list())) == 5
    if state == "leased":
        with pytest.raises(LeaseLost):
            queue.ack(lease)
        assert queue.get("leased-1") is None


def test_a_purged_id_can_be_pushed_again(queue):
    queue.push("old", id="a")
    queue.purge()
    assert queue.claim("w") is None
    queue.push("new", id="a")
    assert queue.claim("w").task.payload == "new"


def test_purging_can_spare_the_young(queue, clock):
    queue.push(1, id="old")
    queue.ack(queue.claim("w"))
    clock.advance(100)
    queue.push(1, id="young")
    queue.ack(queue.claim("w"))
    clock.advance(10)
    assert queue.purge("completed", older_than_seconds=50) == 1
    assert queue.get("old") is None
    assert queue.get("young").state == "completed"


def test_sweeping_a_tidy_queue_does_nothing(queue):
    queue.push(1, id="a")
    queue.claim("w")
    report = queue.sweep()
    assert (report.expired_leases, report.failed, report.quarantined, report.dropped) == (0,) * 4
    assert queue.get("a").state == "leased"


def test_old_completed_tasks_are_dropped_if_the_policy_says_so(engine, clock):
    queue = engine.open_queue(finished="drop", finished_after_seconds=100)
    queue.push(1, id="old")
    queue.ack(queue.claim("w"))
    push_failed(queue, "failed")
    clock.advance(101)
    queue.push(1, id="young")
    queue.ack(queue.claim("w"))
    assert queue.sweep().dropped == 1
    assert queue.get("old") is None
    assert queue.get("young").state == "completed"
    assert queue.get("failed").state == "failed"


@pytest.mark.parametrize("finished", ["keep", "archive"])
def test_old_completed_tasks_are_remembered_otherwise(engine, clock, finished):
    queue = engine.open_queue(finished=finished, finished_after_seconds=100)
    queue.push(1, id="old")
    queue.ack(queue.claim("w"), "out")
    clock.advance(101)
    queue.sweep()
    queue.push(1, id="next", depends_on=["old"])
    assert queue.claim("w").task_id == "next"
    assert queue.get("old").state == "completed"
    assert queue.get("old").result == "out"


def test_saved_state_is_there_at_the_next_attempt(engine, queue):
    queue.push(1, id="a")
    lease = queue.claim("w")
    assert queue.load_state("a") is None
    queue.save_state(lease, {"page": 1})
    queue.save_state(lease, {"page": 7})
    assert queue.load_state("a") == {"page": 7}
    queue.nack(lease, delay=0)
    again = engine.reopen()
    assert again.load_state("a") == {"page": 7}
    queue.ack(queue.claim("w"))


def test_saved_state_survives_a_crash(engine, clock):
    queue = engine.open_queue(lease_seconds=60)
    queue.push(1, id="a")
    queue.save_state(queue.claim("w"), [1, 2])
    clock.advance(61)
    assert queue.claim("next").task_id == "a"
    assert queue.load_state("a") == [1, 2]


def test_a_state_that_another_process_saves_takes_no_time_from_the_lease(engine, clock):
    queue = engine.open_queue(lease_seconds=60)
    queue.push(1, id="a")
    lease = queue.heartbeat(queue.claim("w"), lease_seconds=90)
    clock.advance(5)
    engine.reopen().save_state(lease, "from a helper")
    clock.advance(80)
    assert engine.reopen().claim("other") is None
    queue.ack(lease)
    assert queue.get("a").state == "completed"


def test_a_state_that_can_not_be_stored_keeps_the_old_one(engine):
    queue = engine.open_queue(max_result_bytes=50)
    queue.push(1, id="a")
    lease = queue.claim("w")
    queue.save_state(lease, "small")
    for bad in ("x" * 100, object()):
        with pytest.raises(InvalidTask, match="state"):
            queue.save_state(lease, bad)
    assert queue.load_state("a") == "small"


def test_a_task_without_state_has_none(queue):
    queue.push(1, id="a")
    assert queue.load_state("a") is None
    assert queue.load_state("nobody") is None


def test_purged_failures_are_counted_nowhere_and_block_nobody_as_failed(engine, queue):
    queue.push(1, id="a")
    queue.bury(queue.claim("w"), "enough")
    queue.push(2, id="b", depends_on=["a"])
    assert queue.purge("failed") == 1
    again = engine.reopen()
    assert again.stats().failed == 0
    assert list(again.list("failed")) == []
    assert dict(again.get("b").blocked_by) == {"a": "unknown"}
