"""What becomes of a task by what its handler does."""

from __future__ import annotations

import asyncio

import pytest

import dfq


def test_a_handler_that_raises_is_tried_again_and_its_history_says_where(queue, start):
    def fails_once(ctx, payload):
        if ctx.attempt == 1:
            raise ValueError("no such city")
        return "done"

    queue.push(1, id="a")
    worker = start(queue, fails_once, drain=True)
    assert worker.ended() == 0
    record = queue.get("a")
    assert record.result == "done"
    (error,) = record.task.errors
    assert error.kind == "error"
    assert error.message.startswith("ValueError: no such city")
    assert "test_outcomes.py" in error.message
    assert "in fails_once" in error.message
    assert "dfq/worker" not in error.message
    assert worker.worker.progress.retried == 1


def test_a_task_that_always_fails_ends_in_failed(queue, start):
    def fails(payload):
        raise ValueError("never")

    queue.push(1, id="a", max_attempts=3)
    worker = start(queue, fails, drain=True)
    assert worker.ended() == 0
    assert queue.get("a").state == "failed"
    assert len(queue.get("a").task.errors) == 3
    assert (worker.worker.progress.failed, worker.worker.progress.retried) == (1, 2)


def test_reject_buries_at_once(queue, start):
    def rejects(payload):
        raise dfq.Reject("not a city")

    queue.push(1, id="a")
    start(queue, rejects, drain=True).ended()
    record = queue.get("a")
    assert record.state == "failed"
    assert [(e.kind, e.message) for e in record.task.errors] == [("buried", "not a city")]


def test_retry_later_puts_the_task_back_without_counting(queue, start):
    times = []

    def waits(ctx, payload):
        times.append(ctx.attempt)
        if len(times) < 3:
            raise dfq.RetryLater("rate limit", delay=0)
        return "done"

    queue.push(1, id="a", max_attempts=1)
    start(queue, waits, drain=True).ended()
    assert times == [1, 1, 1]
    assert queue.get("a").result == "done"


def test_retry_later_without_a_delay_does_not_spin(queue, start):
    def waits(payload):
        raise dfq.RetryLater

    queue.push(1, id="a")
    assert start(queue, waits, once=True).ended() == 1
    assert queue.get("a").state == "delayed"


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (SystemExit(3), "sys.exit(3)"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (MemoryError(), "MemoryError"),
        (GeneratorExit(), "GeneratorExit"),
        (asyncio.CancelledError(), "CancelledError"),
        (BaseException("odd"), "odd"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
@pytest.mark.parametrize("kind", ["thread", "coroutine"])
def test_whatever_a_handler_raises_is_a_failure_and_the_worker_goes_on(
    queue, start, raised, said, kind
):
    def in_thread(payload):
        if payload:
            raise raised
        return "fine"

    async def in_loop(payload):
        return in_thread(payload)

    queue.push(True, id="bad", max_attempts=1, priority="high")
    queue.push(False, id="good")
    handler = in_thread if kind == "thread" else in_loop
    assert start(queue, handler, drain=True).ended() == 0
    assert queue.get("bad").state == "failed"
    assert said in queue.get("bad").task.errors[0].message
    assert queue.get("good").result == "fine"


def test_an_exception_that_can_not_be_printed_is_still_a_failure(queue, start):
    class Broken(Exception):
        def __str__(self):
            raise RuntimeError("no words")

    def fails(payload):
        raise Broken

    queue.push(1, id="a", max_attempts=1)
    start(queue, fails, drain=True).ended()
    assert "Broken" in queue.get("a").task.errors[0].message


def test_a_result_that_is_not_json_fails_the_task_without_doing_the_work_again(queue, start):
    calls = []

    def handler(payload):
        calls.append(payload)
        return object()

    queue.push(1, id="a")
    start(queue, handler, drain=True).ended()
    record = queue.get("a")
    assert (record.state, len(calls)) == ("failed", 1)
    assert "the work is done, but the result can't be stored" in record.task.errors[0].message
