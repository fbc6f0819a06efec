from __future__ import annotations

import asyncio
import doctest

import pytest

import dfq
import dfq.testing
from dfq.handler import Context
from dfq.testing import FakeClock, SeededChance, drain, inline, memory_queue


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def queue(clock):
    return memory_queue(clock=clock)


def test_a_fake_clock_stands_still_until_told(clock):
    wall, boot = clock.wall(), clock.boot()
    assert (clock.wall(), clock.boot()) == (wall, boot)
    clock.advance(5)
    assert (clock.wall(), clock.boot()) == (wall + 5, boot + 5)
    clock.jump_wall(-100)
    assert (clock.wall(), clock.boot()) == (wall - 95, boot + 5)
    with pytest.raises(ValueError, match="jump_wall"):
        clock.advance(-1)


def test_the_same_seed_gives_the_same_run():
    def run(seed):
        chance = SeededChance(seed)
        return [chance.bits(80) for _ in range(10)], [chance.uniform(1, 2) for _ in range(10)]

    assert run(1) == run(1)
    assert run(1) != run(2)


def test_seeded_chance_looks_random():
    chance = SeededChance(0)
    assert 45 < sum(chance.uniform(0, 100) for _ in range(2_000)) / 2_000 < 55
    assert len({chance.bits(80) for _ in range(2_000)}) == 2_000
    ones = sum(chance.bits(80).bit_count() for _ in range(500))
    assert 0.48 < ones / 500 / 80 < 0.52
    assert {chance.bits(1) for _ in range(100)} == {0, 1}


def test_two_memory_queues_are_two(queue):
    queue.push(1, id="a")
    assert memory_queue().get("a") is None


def test_drain_runs_all_that_is_ready_and_records_results(queue):
    for i in range(5):
        queue.push(i, id=f"t{i}")
    queue.push(9, id="later", delay=60)
    queue.push(10, id="after", depends_on=["t1"])
    assert drain(queue, lambda payload: payload * 2) == 6
    assert queue.get("t4").result == 8
    assert queue.get("after").result == 20
    assert queue.get("later").state == "delayed"


def test_drain_settles_failures_as_a_worker_would(queue, clock):
    def handler(payload):
        raise {"retry": dfq.RetryLater(delay=5), "bad": dfq.Reject("never")}.get(
            payload, ValueError("oops")
        )

    for payload in ("retry", "bad", "error"):
        queue.push(payload, id=payload)
    assert drain(queue, handler) >= 3
    assert queue.get("retry").task.attempts == 0
    assert queue.get("retry").state == "delayed"
    assert queue.get("bad").state == "failed"
    assert queue.get("bad").task.errors[-1].message == "never"
    assert queue.get("error").task.errors[0].message == "ValueError: oops"


def test_drain_takes_decorated_handlers_by_name(queue):
    @queue.task
    def double(x):
        return 2 * x

    @queue.task(name="sum")
    async def add(*numbers):
        await asyncio.sleep(0)
        return sum(numbers)

    doubled, summed = double.push(4), add.push(1, 2, 3)
    queue.push("x", id="other", name="other")
    assert drain(queue, double, add) == 2
    assert queue.get(doubled.id).result == 8
    assert queue.get(summed.id).result == 6
    assert queue.get("other").state == "ready"
    assert drain(queue, double, str.upper) == 1
    assert queue.get("other").result == "X"


def test_a_handler_gets_its_context(queue):
    seen = []

    @queue.task
    def work(ctx: Context, x):
        seen.append((ctx.task.payload, ctx.fence, ctx.attempt, ctx.load_state()))
        ctx.save_state({"x": x})
        ctx.progress(0.5, "half")
        ctx.heartbeat()
        ctx.log.debug("working")
        assert not ctx.cancelled.is_set()
        if ctx.fence == 1:
            raise dfq.RetryLater(delay=0)

    work.push(1)
    drain(queue, work)
    payload = {"args": [1], "kwargs": {}}
    assert seen[0] == (payload, 1, 1, None)
    assert seen[1][1:] == (2, 1, {"x": 1})


def test_drain_does_not_run_for_ever(queue, monkeypatch):
    monkeypatch.setattr("dfq.testing.MAX_DELIVERIES", 50)
    queue.push(0)
    with pytest.raises(dfq.DfqError, match="push itself"):
        drain(queue, lambda payload: queue.push(payload + 1) and None)


def test_inline_runs_a_push_before_it_returns(queue):
    @queue.task
    def double(x):
        return 2 * x

    with inline(queue, double) as runs:
        task = double.push(21)
        assert runs.results[task.id] == 42
        assert queue.get(task.id).result == 42
    assert queue.get(double.push(1).id).state == "ready"


def test_inline_runs_what_handlers_push(queue):
    @queue.task
    def countdown(n):
        if n:
            countdown.push(n - 1)
        return n

    with inline(queue, countdown) as runs:
        countdown.push(3)
    assert sorted(runs.results.values()) == [0, 1, 2, 3]


def test_inline_runs_a_batch(queue):
    with inline(queue, lambda payload: payload + 1) as runs:
        pushed = queue.push_many(queue.new_task(i) for i in range(3))
    assert [runs.results[p.id] for p in pushed] == [1, 2, 3]


def test_inline_raises_what_the_handler_raised_after_recording_it(queue):
    def fail(payload):
        raise KeyError(payload)

    with inline(queue, fail) as runs, pytest.raises(KeyError):
        queue.push("x", id="a")
    assert isinstance(runs.errors["a"], KeyError)
    assert queue.get("a").task.attempts == 1
    with inline(queue, fail, raise_errors=False) as runs:
        queue.push("y", id="b")
    assert isinstance(runs.errors["b"], KeyError)


def test_inline_works_inside_a_running_loop(queue):
    @queue.task
    async def work(x):
        await asyncio.sleep(0)
        return x

    async def test():
        with inline(queue, work) as runs:
            return runs.results[work.push(5).id]

    assert asyncio.run(test()) == 5


def test_a_result_that_can_not_be_stored_buries_the_task(queue):
    queue.push(1, id="a")
    drain(queue, lambda payload: object())
    assert queue.get("a").state == "failed"
    assert "result" in queue.get("a").task.errors[-1].message


def test_a_handler_may_cancel_its_own_task(queue):
    queue.push("a", id="a")
    drain(queue, queue.cancel)
    assert queue.get("a").state == "failed"


def test_a_broken_off_test_gives_its_task_back(queue):
    def interrupted(payload):
        raise KeyboardInterrupt

    queue.push(1, id="a")
    with pytest.raises(KeyboardInterrupt):
        drain(queue, interrupted)
    assert (queue.get("a").state, queue.get("a").task.attempts) == ("ready", 0)


def test_handlers_are_needed_and_one_plain_function_at_most(queue):
    for handlers in ([], [str, len]):
        with pytest.raises(dfq.HandlerError):
            drain(queue, *handlers)


@pytest.mark.parametrize("module", [dfq, dfq.testing], ids=lambda m: m.__name__)
def test_the_examples_in_the_docstrings_are_true(module):
    outcome = doctest.testmod(module)
    assert outcome.attempted > 0
    assert outcome.failed == 0


def test_inline_works_on_a_folder_too(tmp_path):
    with dfq.open(tmp_path / "q") as queue, inline(queue, str.upper) as runs:
        task = queue.push("loud")
        assert queue.get(task.id).result == runs.results[task.id] == "LOUD"
