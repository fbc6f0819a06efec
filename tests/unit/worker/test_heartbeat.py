"""Heartbeats, and what a lost lease means for the work."""

from __future__ import annotations

import asyncio
import threading

from dfq.errors import QueueUnavailable
from dfq.worker.execution import command_handlers


def test_leases_are_renewed_while_a_handler_is_busy(quick_queue, start, proxy, signalled):
    heartbeat = signalled(quick_queue.heartbeat_many)

    def handler(ctx, payload):
        heartbeat.wait_for_calls(3)
        return ctx.lease.heartbeat_at > ctx.lease.acquired_at

    quick_queue.push(1, id="a")
    start(proxy(quick_queue, heartbeat_many=heartbeat), handler, drain=True).ended()
    assert quick_queue.get("a").result is True


def test_a_coroutine_that_blocks_its_loop_does_not_stop_the_heartbeats(
    quick_queue, start, proxy, signalled
):
    heartbeat = signalled(quick_queue.heartbeat_many)

    async def handler(payload):
        heartbeat.wait_for_calls(3)

    quick_queue.push(1, id="a")
    start(proxy(quick_queue, heartbeat_many=heartbeat), handler, drain=True).ended()
    assert quick_queue.get("a").state == "completed"


def test_a_short_lease_is_renewed_in_time_whatever_the_policy_says(queue, start, proxy, signalled):
    heartbeat = signalled(queue.heartbeat_many)
    queue.push(1, id="a")
    start(
        proxy(queue, heartbeat_many=heartbeat),
        lambda payload: heartbeat.wait_for_calls(2),
        lease_seconds=0.3,
        drain=True,
    ).ended()
    record = queue.get("a")
    assert (record.state, record.lease.attempt) == ("completed", 1)


def test_a_lost_lease_cancels_a_thread_and_its_outcome_is_refused(
    quick_queue, start, happens, caplog
):
    begun = threading.Event()

    def handler(ctx, payload):
        begun.set()
        happens(ctx.cancelled)
        return "stale"

    quick_queue.push(1, id="a")
    worker = start(quick_queue, handler, drain=True)
    happens(begun)
    quick_queue.cancel("a", "not wanted")
    assert worker.ended() == 0
    record = quick_queue.get("a")
    assert (record.state, record.result) == ("failed", None)
    assert "lease lost, the work is cancelled" in caplog.text
    assert "outcome refused" in caplog.text
    assert worker.worker.progress.completed == 0


def test_a_lost_lease_cancels_a_coroutine(quick_queue, start, happens):
    begun, cancelled = threading.Event(), threading.Event()

    async def handler(payload):
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    quick_queue.push(1, id="a")
    worker = start(quick_queue, handler, drain=True)
    happens(begun)
    quick_queue.cancel("a")
    assert worker.ended() == 0
    assert cancelled.is_set()


def test_a_lost_lease_kills_a_program(quick_queue, start, proxy, signalled):
    heartbeat = signalled(quick_queue.heartbeat_many)
    quick_queue.push(1, id="a")
    worker = start(
        proxy(quick_queue, heartbeat_many=heartbeat),
        handlers=command_handlers("sleep 60"),
        drain=True,
    )
    heartbeat.wait_for_calls(1)
    quick_queue.cancel("a")
    assert worker.ended() == 0
    assert quick_queue.get("a").state == "failed"


def test_a_handlers_own_heartbeat_tells_it_that_the_lease_is_lost(queue, start):
    seen = []

    def handler(ctx, payload):
        queue.cancel(ctx.task.id)
        try:
            ctx.heartbeat()
        except Exception as error:
            seen.append((type(error).__name__, ctx.cancelled.is_set(), ctx.cancelled.reason))
            raise

    queue.push(1, id="a")
    assert start(queue, handler, drain=True).ended() == 0
    (((name, cancelled, reason)),) = seen
    assert name.startswith(("Lease", "Already"))
    assert (cancelled, reason) == (True, "lost")


def test_heartbeats_that_fail_are_reported_once_and_come_back(
    quick_queue, start, proxy, signalled, caplog
):
    caplog.set_level("INFO", logger="dfq")
    failures = iter([QueueUnavailable("disk is gone")] * 3)

    def heartbeat(leases, **kwargs):
        error = next(failures, None)
        if error is not None:
            raise error
        return quick_queue.heartbeat_many(leases, **kwargs)

    counted = signalled(heartbeat)
    quick_queue.push(1, id="a")
    start(
        proxy(quick_queue, heartbeat_many=counted),
        lambda payload: counted.wait_for_calls(6),
        drain=True,
    ).ended()
    assert quick_queue.get("a").state == "completed"
    assert caplog.text.count("heartbeats fail, trying on: disk is gone") == 1
    assert caplog.text.count("heartbeats are back") == 1


def test_state_is_kept_between_attempts(queue, start):
    def handler(ctx, payload):
        if ctx.attempt == 1:
            ctx.save_state({"page": 7})
            raise RuntimeError("later")
        return ctx.load_state()

    queue.push(1, id="a")
    start(queue, handler, drain=True).ended()
    assert queue.get("a").result == {"page": 7}


def test_progress_takes_any_number():
    from dfq.testing import memory_queue
    from dfq.worker.context import TaskContext

    queue = memory_queue()
    queue.push(1)
    context = TaskContext(queue, queue.claim())
    for fraction, kept in [(0.5, 0.5), (7, 1.0), (-1, 0.0), (float("nan"), 0.0)]:
        context.progress(fraction, "n" * 1_000)
        assert context.last_progress == (kept, "n" * 200)


def test_an_outcome_does_not_wait_for_the_heartbeats_of_others(quick_queue, start, proxy, happens):
    beating, settled = threading.Event(), threading.Event()

    def slow(leases, **how):
        beating.set()
        happens(settled)
        return quick_queue.heartbeat_many(leases, **how)

    def ack(lease, result=None):
        quick_queue.ack(lease, result)
        settled.set()

    quick_queue.push(1, id="a")
    worker = start(
        proxy(quick_queue, heartbeat_many=slow, ack=ack),
        lambda payload: happens(beating),
        drain=True,
    )
    assert worker.ended() == 0
    assert quick_queue.get("a").state == "completed"


def test_a_lease_that_ended_during_a_heartbeat_is_not_told_as_lost(
    quick_queue, start, proxy, happens, caplog
):
    beating, acked, done = threading.Event(), threading.Event(), threading.Event()

    def late(leases, **how):
        beating.set()
        happens(acked)
        answers = quick_queue.heartbeat_many(leases, **how)
        done.set()
        return answers

    def handler(ctx, payload):
        happens(beating)
        seen.append(ctx.cancelled)

    def ack(lease, result=None):
        quick_queue.ack(lease, result)
        acked.set()
        happens(done)

    seen = []
    quick_queue.push(1, id="a")
    start(proxy(quick_queue, heartbeat_many=late, ack=ack), handler, drain=True).ended()
    assert not seen[0].is_set()
    assert "lost" not in caplog.text
