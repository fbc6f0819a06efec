"""How a worker stops: first politely, then at once."""

from __future__ import annotations

import asyncio
import threading

from dfq.worker.execution import command_handlers


def test_an_idle_worker_stops_when_told(queue, start):
    assert start(queue, lambda payload: None).stopped() == 0


def test_stopping_lets_running_tasks_finish_and_claims_no_more(
    queue, start, happens, proxy, signalled
):
    begun, go_on, interrupt = threading.Event(), threading.Event(), signalled(queue.interrupt)

    def handler(payload):
        begun.set()
        happens(go_on)
        return "finished"

    queue.push(1, id="a", priority="high")
    queue.push(2, id="b")
    worker = start(proxy(queue, interrupt=interrupt), handler)
    happens(begun)
    worker.stop()
    interrupt.wait_for_calls(1)
    go_on.set()
    assert worker.ended() == 0
    assert queue.get("a").result == "finished"
    assert queue.get("b").state == "ready"


def test_when_the_grace_time_is_over_running_tasks_are_put_back_uncounted(queue, start, happens):
    begun, go_on, cancelled = threading.Event(), threading.Event(), threading.Event()

    def handler(ctx, payload):
        begun.set()
        happens(go_on)
        if ctx.cancelled.is_set():
            cancelled.set()

    queue.push(1, id="a")
    worker = start(queue, handler, grace_seconds=0.02)
    happens(begun)
    assert worker.stopped() == 0
    record = queue.get("a")
    assert (record.state, record.task.attempts) == ("ready", 0)
    assert worker.worker.progress.released == 1
    go_on.set()
    happens(cancelled)


def test_a_coroutine_is_cancelled_when_the_grace_time_is_over(queue, start, happens):
    begun, cancelled = threading.Event(), threading.Event()

    async def handler(payload):
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    queue.push(1, id="a")
    worker = start(queue, handler, grace_seconds=0)
    happens(begun)
    assert worker.stopped() == 0
    assert cancelled.is_set()
    assert (queue.get("a").state, queue.get("a").task.attempts) == ("ready", 0)


def test_a_program_is_killed_when_the_grace_time_is_over(queue, start, signalled, proxy):
    queue.push(1, id="a")
    heartbeat = signalled(queue.heartbeat_many)
    worker = start(
        proxy(queue, heartbeat_many=heartbeat),
        handlers=command_handlers("sleep 60"),
        grace_seconds=0,
        lease_seconds=0.1,
    )
    heartbeat.wait_for_calls(1)
    assert worker.stopped() == 0
    assert (queue.get("a").state, queue.get("a").task.attempts) == ("ready", 0)


def test_stopping_at_once_does_not_wait_for_the_grace_time(queue, start, happens):
    begun, go_on = threading.Event(), threading.Event()

    def handler(payload):
        begun.set()
        happens(go_on)

    queue.push(1, id="a")
    worker = start(queue, handler, grace_seconds=3_600)
    happens(begun)
    worker.stop()
    assert worker.stopped(at_once=True) == 0
    assert queue.get("a").state == "ready"
    go_on.set()


def test_a_coroutine_that_ignores_its_cancellation_is_left_behind(queue, start, happens):
    begun, go_on = threading.Event(), threading.Event()

    async def handler(payload):
        begun.set()
        while not go_on.is_set():
            try:
                await asyncio.sleep(0.005)
            except asyncio.CancelledError:
                continue

    queue.push(1, id="a")
    worker = start(queue, handler, grace_seconds=3_600)
    happens(begun)
    assert worker.stopped(at_once=True) == 0
    assert queue.get("a").state == "ready"
    go_on.set()


def test_a_stop_before_the_wait_begins_is_not_lost(queue, start, proxy, happens):
    """Even when the queue forgets interrupts that nobody waits for."""
    claimed, stopped = threading.Event(), threading.Event()
    woken = threading.Event()

    def claim_many(*args, **kwargs):
        leases = queue.claim_many(*args, **kwargs)
        claimed.set()
        happens(stopped)
        return leases

    def wait(_seconds):
        woken.clear()
        return woken.wait(20)

    forgetful = proxy(queue, claim_many=claim_many, wait=wait, interrupt=woken.set)
    worker = start(forgetful, lambda payload: None)
    happens(claimed)
    worker.stop()
    stopped.set()
    assert worker.ended() == 0
