"""What a worker does with tasks, and when it ends."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest

import dfq
from dfq.errors import HandlerError
from dfq.record import Filter
from dfq.worker.execution import command_handlers

DRAIN = {"drain": True}


def test_a_plain_function_gets_the_payload_and_its_return_is_the_result(queue, start):
    queue.push(21, id="a")
    assert start(queue, lambda payload: payload * 2, drain=True).ended() == 0
    assert queue.get("a").result == 42


def test_a_plain_function_may_ask_for_the_context(queue, start):
    queue.push({"x": 1}, id="a")
    start(queue, lambda ctx, payload: [ctx.task.id, ctx.attempt, payload], drain=True).ended()
    assert queue.get("a").result == ["a", 1, {"x": 1}]


def test_decorated_functions_get_their_arguments_each_its_own_tasks(queue, start):
    @queue.task
    def add(x: int, y: int = 0) -> int:
        return x + y

    @queue.task
    async def join(ctx: dfq.Context, *words: str) -> str:
        await asyncio.sleep(0)
        return f"{ctx.fence}:" + "".join(words)

    added, joined = add.push(1, y=2), join.push("a", "b")
    start(queue, add, join, drain=True).ended()
    assert queue.get(added.id).result == 3
    assert queue.get(joined.id).result == "1:ab"


def test_a_function_that_returns_an_awaitable_is_awaited(queue, start):
    async def later(payload):
        return payload + 1

    queue.push(1, id="a")
    start(queue, lambda payload: later(payload), drain=True).ended()
    assert queue.get("a").result == 2


def test_a_task_that_no_handler_is_named_for_is_never_claimed(queue, start):
    @queue.task
    def add(x: int) -> int:
        return x

    queue.push(1, id="other", name="subtract")
    queue.push(1, id="nameless")
    pushed = add.push(1)
    start(queue, add, drain=True).ended()
    assert queue.get(pushed.id).state == "completed"
    assert {queue.get(i).state for i in ("other", "nameless")} == {"ready"}
    assert queue.get("other").task.attempts == 0


def test_names_that_were_asked_for_go_to_the_plain_function(queue, start):
    queue.push(1, id="a", name="enrich")
    queue.push(1, id="b", name="other")
    start(queue, lambda payload: payload, drain=True, filter=Filter(names=("enrich",))).ended()
    assert (queue.get("a").state, queue.get("b").state) == ("completed", "ready")


def test_asking_for_names_without_a_handler_is_an_error(queue, start):
    @queue.task
    def add(x: int) -> int:
        return x

    with pytest.raises(HandlerError, match=r"no handler for tasks named 'enrich'.*add"):
        start(queue, add, filter=Filter(names=("enrich",)))


def test_a_payload_that_is_no_call_of_the_handler_is_buried(queue, start):
    @queue.task
    def add(x: int) -> int:
        return x

    queue.push([1], id="a", name="add")
    start(queue, add, drain=True).ended()
    record = queue.get("a")
    assert record.state == "failed"
    assert "no call of a decorated handler" in record.task.errors[-1].message


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
    assert "test_loop.py" in error.message
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


def test_drain_waits_for_delayed_tasks(queue, start):
    queue.push(1, id="late", delay=0.05)
    assert start(queue, lambda payload: payload, drain=True).ended() == 0
    assert queue.get("late").state == "completed"


def test_drain_waits_for_tasks_that_others_hold(queue, start, signalled, proxy):
    queue.push(1, id="theirs")
    lease = queue.claim("other")
    claim_many = signalled(queue.claim_many)
    worker = start(proxy(queue, claim_many=claim_many), lambda payload: payload, drain=True)
    claim_many.wait_for_calls(2)
    assert worker.is_alive()
    queue.release(lease)
    assert worker.ended() == 0
    assert queue.get("theirs").state == "completed"


def test_drain_runs_dependencies_in_order(queue, start):
    order = []
    queue.push("c", id="c", depends_on=["b"])
    queue.push("b", id="b", depends_on=["a"])
    queue.push("a", id="a")
    start(queue, order.append, drain=True).ended()
    assert order == ["a", "b", "c"]


def test_drain_reports_stuck_tasks_and_does_not_wait_for_them(queue, start, caplog):
    def handler(payload):
        raise dfq.Reject("no")

    queue.push(1, id="first")
    queue.push(2, id="second", depends_on=["first"])
    queue.push(3, id="third", depends_on=["second"])
    queue.push(4, id="orphan", depends_on=["nobody"])
    worker = start(queue, handler, drain=True)
    assert worker.ended() == 0
    assert worker.reports[-1].stuck == 3
    assert "3 tasks wait for a dependency that failed or is unknown" in caplog.text
    assert "orphan, second, third" in caplog.text


def test_drain_does_not_wait_for_tasks_it_has_no_handler_for(queue, start):
    @queue.task
    def add(x: int) -> int:
        return x

    queue.push(1, name="other")
    add.push(1)
    assert start(queue, add, drain=True).ended() == 0


def test_drain_reports_how_much_is_left(queue, start):
    queue.push_many(queue.new_task(n) for n in range(3))
    worker = start(queue, lambda payload: None, drain=True)
    worker.ended()
    assert worker.reports[0].remaining == 3
    assert [(r.completed, r.remaining) for r in worker.reports if r.completed == 3][-1] == (3, 0)


def test_drain_wakes_nobody_where_nobody_waits(queue, start, proxy, signalled):
    for number in range(20):
        queue.push(number)
    interrupt = signalled(queue.interrupt)
    assert start(proxy(queue, interrupt=interrupt), lambda payload: None, drain=True).ended() == 0
    # Once, at its end.
    assert interrupt.calls < 3


def test_a_paused_queue_hands_out_nothing_until_it_is_resumed(queue, start, proxy, signalled):
    queue.push(1, id="a")
    queue.pause("lunch")
    claim_many = signalled(queue.claim_many)
    worker = start(proxy(queue, claim_many=claim_many), lambda payload: None, drain=True)
    claim_many.wait_for_calls(2)
    assert queue.get("a").state == "ready"
    queue.resume()
    assert worker.ended() == 0


def test_an_idle_worker_does_nothing_but_wait(queue, start, proxy, signalled, happens):
    waiting, claims, sweeps = threading.Event(), signalled(queue.claim_many), []

    def wait(seconds):
        assert seconds == queue.policy.safety_poll_seconds
        waiting.set()
        return queue.wait(seconds)

    def sweep():
        sweeps.append(1)
        return queue.sweep()

    worker = start(proxy(queue, wait=wait, claim_many=claims, sweep=sweep), lambda payload: 1)
    happens(waiting)
    assert (claims.calls, len(sweeps)) == (1, 1)
    queue.push(1, id="a")
    claims.wait_for_calls(2)
    assert worker.stopped() == 0
    assert queue.get("a").result == 1
    assert len(sweeps) == 1


def test_tasks_of_others_do_not_make_an_idle_worker_spin(queue, start, proxy, signalled, happens):
    paused, claims = threading.Event(), signalled(queue.claim_many)
    asked = []

    class Chance:
        bits = queue.chance.bits

        def uniform(self, low, high):
            asked.append(high)
            if high >= 1.0:
                paused.set()
            return high

    eager = proxy(queue, wait=lambda seconds: True, claim_many=claims, chance=Chance())
    worker = start(eager, lambda payload: 1)
    happens(paused)
    assert claims.calls <= 12
    assert worker.stopped() == 0


def test_an_idle_worker_says_once_that_the_tasks_there_are_not_for_it(
    queue, start, proxy, signalled, caplog
):
    queue.push(1, id="a", name="enrich")
    claims = signalled(queue.claim_many)
    worker = start(proxy(queue, claim_many=claims), lambda payload: 1)
    claims.wait_for_calls(1)
    queue.push(2, id="b", name="enrich")
    claims.wait_for_calls(2)
    assert worker.stopped() == 0
    assert caplog.text.count("ready, but not for this worker: of a, its name is 'enrich'") == 1


def test_an_idle_worker_says_that_the_queue_is_paused(queue, start, caplog):
    queue.push(1, id="a")
    queue.pause()
    assert start(queue, lambda payload: 1, once=True).ended() == 3
    assert "the queue is paused" in caplog.text


def test_an_idle_worker_says_nothing_when_there_is_nothing(queue, start, caplog):
    queue.push(1, delay=60)
    assert start(queue, lambda payload: 1, once=True).ended() == 3
    assert [r for r in caplog.records if r.levelname == "WARNING"] == []


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


def test_a_program_takes_tasks_of_every_name(queue, start):
    queue.push({"a": 1}, id="a", name="anything")
    queue.push({"b": 1}, id="b")
    assert start(queue, handlers=command_handlers("cat"), drain=True).ended() == 0
    assert (queue.get("a").result, queue.get("b").result) == ({"a": 1}, {"b": 1})
