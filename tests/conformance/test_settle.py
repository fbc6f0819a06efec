"""ack, nack, release and bury: how a delivery ends."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dfq import (
    AlreadyCompleted,
    InvalidTask,
    LeaseLost,
    LeaseNotHeld,
    Outcome,
    RetryPolicy,
    WrongState,
)

VERBS = ["ack", "nack", "release", "bury", "heartbeat", "save_state"]


def test_an_acked_task_is_completed_and_says_by_whom(queue, clock):
    queue.push(1, id="a")
    lease = queue.claim("w")
    clock.advance(5)
    queue.ack(lease, {"total": 3})
    record = queue.get("a")
    assert record.state == "completed"
    assert record.result == {"total": 3}
    assert record.finished_at == pytest.approx(clock.wall(), abs=0.01)
    assert (record.lease.worker_id, record.lease.fence) == ("w", lease.fence)
    assert record.lease.lease_id == lease.lease_id
    assert queue.claim("w") is None


def test_a_task_acked_without_a_result_has_none(queue):
    queue.push(1, id="a")
    queue.ack(queue.claim("w"))
    assert queue.get("a").result is None


@pytest.mark.parametrize("result", [0, False, "", [], {"a": [1, None]}], ids=repr)
def test_any_json_is_a_result(queue, result):
    queue.push(1, id="a")
    queue.ack(queue.claim("w"), result)
    assert queue.get("a").result == result
    assert type(queue.get("a").result) is type(result)


def test_a_result_that_can_not_be_stored_leaves_the_lease_as_it_was(engine):
    queue = engine.open_queue(max_result_bytes=50)
    queue.push(1, id="a")
    lease = queue.claim("w")
    for bad in ("x" * 100, object(), float("nan")):
        with pytest.raises(InvalidTask, match="result"):
            queue.ack(lease, bad)
    assert queue.get("a").state == "leased"
    queue.ack(lease, "x")
    assert queue.get("a").result == "x"


def test_the_second_ack_is_told_that_the_task_is_completed(queue):
    queue.push(1, id="a")
    lease = queue.claim("winner")
    queue.ack(lease, "first")
    with pytest.raises(AlreadyCompleted, match="winner"):
        queue.ack(lease, "second")
    assert queue.get("a").result == "first"


@pytest.mark.parametrize("late", VERBS)
def test_a_lease_on_a_completed_task_is_lost_to_every_verb(queue, settle, late):
    queue.push(1, id="a")
    lease = queue.claim("w")
    queue.ack(lease, "done")
    with pytest.raises(AlreadyCompleted):
        settle(late, queue, lease)
    record = queue.get("a")
    assert (record.state, record.result, record.task.errors) == ("completed", "done", ())


@pytest.mark.parametrize("end", ["nack", "release", "bury"])
@pytest.mark.parametrize("late", VERBS)
def test_a_lease_that_was_given_back_is_lost_to_every_verb(queue, settle, end, late):
    queue.push(1, id="a")
    lease = queue.claim("w")
    settle(end, queue, lease)
    before = queue.get("a")
    with pytest.raises(LeaseNotHeld):
        settle(late, queue, lease)
    assert queue.get("a") == before


def test_a_nacked_task_comes_back_with_its_history(queue, clock):
    queue.push(1, id="a")
    lease = queue.claim("w")
    clock.advance(2)
    assert queue.nack(lease, "no route to host", delay=0) is Outcome.RETRY
    task = queue.get("a").task
    assert task.attempts == 1
    (error,) = task.errors
    assert (error.kind, error.message) == ("error", "no route to host")
    assert (error.worker_id, error.attempt, error.fence) == ("w", 1, lease.fence)
    assert error.at == pytest.approx(clock.wall(), abs=0.01)
    again = queue.claim("w")
    assert again.attempt == 2
    assert again.task.errors == (error,)


def test_a_nack_says_what_kind_of_failure_it_was(queue):
    queue.push(1, id="a")
    queue.nack(queue.claim("w"), "60 s were not enough", kind="timeout", delay=0)
    assert queue.get("a").task.errors[0].kind == "timeout"
    with pytest.raises(InvalidTask, match="kind"):
        queue.nack(queue.claim("w"), "x", kind="whim")


def test_the_last_attempt_ends_in_failed(queue):
    queue.push(1, id="a", max_attempts=3)
    outcomes = [queue.nack(queue.claim("w"), f"try {i}", delay=0) for i in (1, 2, 3)]
    assert outcomes == [Outcome.RETRY, Outcome.RETRY, Outcome.FAILED]
    record = queue.get("a")
    assert (record.state, record.task.attempts) == ("failed", 3)
    assert [error.message for error in record.task.errors] == ["try 1", "try 2", "try 3"]
    assert [error.attempt for error in record.task.errors] == [1, 2, 3]
    assert record.finished_at is not None
    assert queue.claim("w") is None


def test_a_finished_task_tells_every_delivery_that_it_took(queue):
    queue.push(1, id="first")
    queue.ack(queue.claim())
    queue.push(1, id="second")
    queue.nack(queue.claim(), "no", delay=0)
    queue.ack(queue.claim())
    queue.push(1, id="never")
    queue.cancel("never")
    queue.push(1, id="running")
    queue.claim()
    queue.cancel("running")
    told = {record.task.id: record.task.attempts for record in queue.list()}
    assert told == {"first": 1, "second": 2, "never": 0, "running": 1}
    assert queue.get("first").task.attempts == queue.get("first").lease.attempt == 1


def test_archived_or_not_a_task_tells_the_same_attempts(engine):
    queue = engine.open_queue(finished="archive", finished_after_seconds=0)
    queue.push(1, id="a")
    queue.ack(queue.claim())
    before = queue.get("a").task.attempts
    queue.sweep()
    assert queue.get("a").task.attempts == before == 1


def test_the_queue_says_how_many_attempts_a_task_has_unless_the_task_does(engine):
    queue = engine.open_queue(max_attempts=1)
    queue.push(1, id="by-queue")
    assert queue.nack(queue.claim("w")) is Outcome.FAILED
    queue.push(1, id="by-task", max_attempts=2)
    assert queue.nack(queue.claim("w")) is Outcome.RETRY


def test_a_nack_with_a_delay_keeps_the_task_back_for_so_long(queue, clock):
    queue.push(1, id="a")
    queue.nack(queue.claim("w"), delay=30)
    assert queue.get("a").state == "delayed"
    clock.advance(29)
    assert queue.claim("w") is None
    clock.advance(2)
    assert queue.claim("w").attempt == 2


def test_a_delay_can_be_a_timedelta_and_must_not_be_negative(queue):
    queue.push(1, id="a")
    lease = queue.claim("w")
    for bad in (-1, float("nan"), timedelta(seconds=-1), "soon"):
        with pytest.raises(InvalidTask, match="delay"):
            queue.nack(lease, delay=bad)
        with pytest.raises(InvalidTask, match="delay"):
            queue.release(lease, delay=bad)
    queue.nack(lease, delay=timedelta(minutes=1))
    assert queue.get("a").state == "delayed"


def test_without_a_delay_the_retry_policy_decides_within_its_ceiling(engine, clock):
    retry = RetryPolicy(base_seconds=10, cap_seconds=25, factor=2)
    queue = engine.open_queue(retry=retry, max_attempts=100)
    queue.push_many(queue.new_task(1, id=f"t{i}") for i in range(30))
    for ceiling in (10, 20, 25, 25):
        for lease in queue.claim_many(30, "w"):
            queue.nack(lease, "again")
        waits = [(record.task.not_before or clock.wall()) - clock.wall() for record in queue.list()]
        assert len(waits) == 30
        assert 0 <= min(waits) < max(waits) <= ceiling
        assert max(waits) > ceiling / 2
        clock.advance(ceiling + 1)


def test_a_tasks_own_retry_policy_comes_before_the_queues(engine, clock):
    queue = engine.open_queue(retry=RetryPolicy(base_seconds=1000, cap_seconds=1000))
    queue.push(1, id="a", retry=RetryPolicy(base_seconds=0, cap_seconds=0))
    queue.nack(queue.claim("w"), "again")
    assert queue.claim("w").attempt == 2


def test_an_endless_error_text_is_cut(queue):
    queue.push(1, id="a")
    queue.nack(queue.claim("w"), "x" * 100_000, delay=0)
    message = queue.get("a").task.errors[0].message
    assert len(message) == 4_000
    assert message.startswith("xxx")


def test_an_error_text_that_is_not_unicode_is_kept_readable(queue):
    queue.push(1, id="a")
    queue.nack(queue.claim("w"), "no file caf\udce9\0", delay=0)
    assert queue.get("a").task.errors[0].message == "no file caf\\udce9\0"


def test_a_history_keeps_the_newest_twenty_errors(queue):
    queue.push(1, id="a", max_attempts=100)
    for i in range(25):
        queue.nack(queue.claim("w"), f"e{i}", delay=0)
    task = queue.get("a").task
    assert task.attempts == 25
    assert [error.message for error in task.errors] == [f"e{i}" for i in range(5, 25)]


def test_a_release_does_not_count_as_an_attempt(queue):
    queue.push(1, id="a", max_attempts=1)
    first = queue.claim("w")
    queue.release(first)
    record = queue.get("a")
    assert (record.state, record.task.attempts, record.task.errors) == ("ready", 0, ())
    second = queue.claim("w")
    assert (second.attempt, second.fence) == (1, first.fence + 1)


def test_a_release_can_keep_the_task_back(queue, clock):
    queue.push(1, id="a")
    queue.release(queue.claim("w"), delay=10)
    assert queue.claim("w") is None
    clock.advance(11)
    assert queue.claim("w").attempt == 1


def test_a_holder_can_bury_its_task(queue):
    queue.push(1, id="a", max_attempts=5)
    lease = queue.claim("w")
    queue.bury(lease, "no such customer")
    record = queue.get("a")
    assert record.state == "failed"
    assert (record.task.errors[-1].kind, record.task.errors[-1].message) == (
        "buried",
        "no such customer",
    )
    assert record.task.errors[-1].worker_id == "w"
    assert queue.claim("w") is None


def test_another_handle_can_settle_the_lease(engine, queue):
    queue.push(1, id="a")
    lease = queue.claim("w")
    engine.reopen().ack(lease, "there")
    assert queue.get("a").result == "there"
    with pytest.raises(LeaseLost):
        queue.ack(lease)


def test_a_completed_task_can_not_be_requeued_and_the_error_says_what_can_be_done(queue):
    queue.push(1, id="a")
    queue.ack(queue.claim())
    with pytest.raises(WrongState, match=r"'a' is completed.*push it again under a new id"):
        queue.requeue("a")


def test_a_pending_task_needs_no_requeue(queue):
    queue.push(1, id="a")
    with pytest.raises(WrongState, match=r"'a' is ready; only a failed task"):
        queue.requeue("a")
