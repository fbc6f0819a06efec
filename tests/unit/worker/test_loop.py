"""How a worker works: so many tasks at once, until so many are done, whatever happens."""

from __future__ import annotations

import asyncio
import logging
import threading


def test_no_more_tasks_run_at_once_than_asked_for(queue, start):
    everybody = threading.Barrier(3, timeout=20)
    lock = threading.Lock()
    running, most = 0, 0

    def handler(payload):
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        everybody.wait()
        with lock:
            running -= 1

    queue.push_many(queue.new_task(n) for n in range(9))
    start(queue, handler, drain=True, concurrency=3).ended()
    assert most == 3
    assert queue.stats().completed == 9


def test_many_coroutines_run_at_once_in_few_threads(queue, start):
    most_threads = 0
    together = asyncio.Event()
    running = 0

    async def handler(payload):
        nonlocal running, most_threads
        running += 1
        most_threads = max(most_threads, threading.active_count())
        if running == 50:
            together.set()
        await asyncio.wait_for(together.wait(), 20)

    before = threading.active_count()
    queue.push_many(queue.new_task(n) for n in range(50))
    start(queue, handler, drain=True, concurrency=50).ended()
    assert queue.stats().completed == 50
    assert most_threads - before <= 8


def test_a_worker_without_free_hands_claims_nothing(queue, start, happens):
    begun, go_on = threading.Event(), threading.Event()

    def handler(payload):
        begun.set()
        happens(go_on)

    queue.push_many(queue.new_task(n) for n in range(3))
    worker = start(queue, handler)
    happens(begun)
    assert (queue.stats().leased, queue.stats().ready) == (1, 2)
    go_on.set()
    assert worker.stopped() == 0


def test_max_tasks_ends_the_worker_after_so_many(queue, start):
    queue.push_many(queue.new_task(n) for n in range(10))
    assert start(queue, lambda payload: None, max_tasks=4, concurrency=3).ended() == 0
    assert (queue.stats().completed, queue.stats().ready) == (4, 6)


def test_once_exits_0_for_a_task_that_is_done(queue, start):
    queue.push_many([queue.new_task(1), queue.new_task(2)])
    assert start(queue, lambda payload: None, once=True).ended() == 0
    assert (queue.stats().completed, queue.stats().ready) == (1, 1)


def test_once_exits_1_for_a_task_that_failed(queue, start):
    queue.push(0)
    assert start(queue, lambda payload: 1 / payload, once=True).ended() == 1


def test_once_exits_3_when_there_is_nothing(queue, start):
    assert start(queue, lambda payload: None, once=True).ended() == 3


def test_the_worker_sweeps_at_its_start_so_a_dead_workers_task_comes_back(queue, start):
    queue.push(1, id="a")
    queue.claim("dead", lease_seconds=0.001)
    assert start(queue, lambda ctx, payload: ctx.attempt, drain=True).ended() == 0
    assert queue.get("a").result == 2


def test_two_workers_of_the_same_name_share_the_work_and_finish_each_task_once(queue, start):
    done = []
    queue.push_many(queue.new_task(n) for n in range(200))
    workers = [
        start(queue, done.append, drain=True, worker_id="twin", concurrency=2) for _ in range(2)
    ]
    assert [worker.ended() for worker in workers] == [0, 0]
    assert sorted(done) == list(range(200))
    assert queue.stats().completed == 200


def test_a_bug_in_the_worker_ends_it_with_1_and_a_log(queue, start, proxy, caplog):
    def claim_many(*_args, **_kwargs):
        raise ZeroDivisionError("bug")

    assert start(proxy(queue, claim_many=claim_many), lambda payload: None).ended() == 1
    assert "ZeroDivisionError: bug" in caplog.text


def test_a_progress_callback_that_raises_does_not_lose_tasks(queue, caplog):
    from dfq.worker.handlers import handler_set
    from dfq.worker.loop import Worker
    from dfq.worker.options import WorkerOptions

    def breaks(_progress):
        raise RuntimeError("no bar")

    queue.push(1, id="a")
    options = WorkerOptions(drain=True)
    assert Worker(queue, handler_set(lambda payload: None), options, breaks).run() == 0
    assert queue.get("a").state == "completed"
    assert "no bar" in caplog.text


def test_every_line_about_a_task_has_its_correlation_id(queue, start, caplog):
    caplog.set_level(logging.DEBUG, logger="dfq")

    def handler(ctx, payload):
        ctx.progress(0.5, "half way")
        ctx.log.info("hello")

    queue.push(1, id="a", correlation_id="corr-1")
    start(queue, handler, drain=True).ended()
    about = [record.dfq_task for record in caplog.records if hasattr(record, "dfq_task")]
    said = [record.getMessage() for record in caplog.records if hasattr(record, "dfq_task")]
    assert said[:3] == ["started", "50 % half way", "hello"]
    assert said[3].startswith("completed in")
    assert {(a["task_id"], a["attempt"], a["fence"], a["correlation_id"]) for a in about} == {
        ("a", 1, 1, "corr-1")
    }
