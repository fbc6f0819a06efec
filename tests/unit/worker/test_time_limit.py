"""Time limits: what can be stopped is stopped, what can't is no longer waited for."""

from __future__ import annotations

import asyncio
import threading

import pytest

from dfq.worker import loop
from dfq.worker.execution import command_handlers

LIMIT = 0.05


def errors_of(queue, task_id):
    return [(error.kind, error.message) for error in queue.get(task_id).task.errors]


def test_a_thread_that_hangs_is_told_and_its_task_fails_by_timeout(queue, start, happens):
    go_on, noticed = threading.Event(), threading.Event()

    def hangs(ctx, payload):
        happens(go_on)
        assert ctx.cancelled.is_set()
        noticed.set()
        return "too late"

    queue.push(1, id="a", max_attempts=1)
    worker = start(queue, hangs, timeout_seconds=LIMIT, drain=True)
    assert worker.ended() == 0
    assert errors_of(queue, "a") == [("timeout", "not done within 0.05 seconds")]
    go_on.set()
    happens(noticed)
    assert queue.get("a").state == "failed"
    assert queue.get("a").result is None


def test_a_thread_that_hangs_does_not_keep_others_from_their_work(queue, start, happens):
    go_on = threading.Event()

    def handler(payload):
        if payload == "hang":
            happens(go_on)
        return payload

    queue.push("hang", id="a", max_attempts=1, priority="high")
    queue.push("work", id="b")
    assert start(queue, handler, timeout_seconds=LIMIT, drain=True).ended() == 0
    assert queue.get("b").result == "work"
    go_on.set()


def test_the_late_outcome_of_a_thread_is_dropped_while_the_next_attempt_runs(
    queue, start, happens, caplog
):
    caplog.set_level("INFO", logger="dfq")
    go_on, dropped = threading.Event(), threading.Event()

    def handler(ctx, payload):
        if ctx.attempt == 1:
            happens(go_on)
            return "first"
        go_on.set()
        happens(dropped)
        return "second"

    class Watch:
        def __call__(self, record):
            if "its outcome is dropped" in record.getMessage():
                dropped.set()
            return True

    caplog.handler.addFilter(Watch())
    queue.push(1, id="a")
    assert start(queue, handler, timeout_seconds=1.0, drain=True).ended() == 0
    assert queue.get("a").result == "second"


def test_a_coroutine_over_its_time_is_cancelled(queue, start, happens):
    cancelled = threading.Event()

    async def hangs(payload):
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    queue.push(1, id="a", max_attempts=1)
    assert start(queue, hangs, timeout_seconds=LIMIT, drain=True).ended() == 0
    assert cancelled.is_set()
    assert errors_of(queue, "a") == [("timeout", "not done within 0.05 seconds")]


def test_a_program_over_its_time_is_killed(queue, start):
    queue.push(1, id="a", max_attempts=1)
    worker = start(queue, handlers=command_handlers("sleep 60"), timeout_seconds=LIMIT, drain=True)
    assert worker.ended() == 0
    assert errors_of(queue, "a") == [("timeout", "not done within 0.05 seconds")]


def test_a_handlers_own_limit_wins_over_the_workers(queue, start):
    @queue.task(timeout_seconds=LIMIT, max_attempts=1)
    async def hangs() -> None:
        await asyncio.Event().wait()

    pushed = hangs.push()
    assert start(queue, hangs, timeout_seconds=3_600, drain=True).ended() == 0
    assert errors_of(queue, pushed.id) == [("timeout", "not done within 0.05 seconds")]


def test_work_within_the_limit_is_left_alone(queue, start):
    queue.push(1, id="a")
    assert start(queue, lambda payload: "done", timeout_seconds=60, drain=True).ended() == 0
    assert queue.get("a").result == "done"


def test_a_coroutine_that_ignores_its_cancellation_fails_by_timeout_all_the_same(
    queue, start, happens, monkeypatch
):
    monkeypatch.setattr(loop, "STOP_PATIENCE_SECONDS", 0.02)
    go_on = threading.Event()

    async def ignores(payload):
        while not go_on.is_set():
            try:
                await asyncio.sleep(0.005)
            except asyncio.CancelledError:
                continue

    queue.push(1, id="a", max_attempts=1)
    worker = start(queue, ignores, timeout_seconds=LIMIT, drain=True)
    assert worker.ended() == 0
    assert errors_of(queue, "a")[0][0] == "timeout"
    go_on.set()


def test_a_worker_whose_threads_all_hang_ends_to_be_restarted(
    queue, start, happens, monkeypatch, caplog
):
    monkeypatch.setattr(loop, "MAX_ABANDONED", 2)
    go_on = threading.Event()
    queue.push_many(queue.new_task(n) for n in range(10))
    worker = start(queue, lambda payload: happens(go_on), timeout_seconds=LIMIT)
    assert worker.ended() == 1
    assert "3 handlers hang past their time limit" in caplog.text
    assert queue.stats().leased == 0
    go_on.set()


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_a_limit_that_is_no_time_is_refused(seconds):
    from dfq.errors import InvalidConfig
    from dfq.worker.options import WorkerOptions

    with pytest.raises(InvalidConfig, match="timeout_seconds"):
        WorkerOptions(timeout_seconds=seconds)
