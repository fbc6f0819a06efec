"""A worker that ends when nothing is left to do."""

from __future__ import annotations

import pytest

import dfq
from dfq.record import Filter
from dfq.testing import memory_queue
from dfq.worker.draining import remaining


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


def moving(queue, steps):
    """The queue's stats; right after each count the next step is taken."""
    steps = list(steps)

    def stats():
        counted = queue.stats()
        if steps:
            steps.pop(0)()
        return counted

    return stats


def test_drain_does_not_miss_a_task_that_becomes_ready_while_it_counts(queue, start, proxy):
    queue.push(1, id="late", delay=0.05)

    def list_late(state=None, **options):
        while state == "delayed" and queue.get("late").state == "delayed":
            queue.wait(0.1)
        # Seen in none of the states: when each was listed, it was in another.
        return iter(()) if state == "ready" else queue.list(state, **options)

    worker = start(proxy(queue, list=list_late), lambda payload: payload, drain=True)
    assert worker.ended() == 0
    assert queue.get("late").state == "completed"


@pytest.mark.parametrize("wanted", [Filter(), Filter(project="ours")], ids=["all", "filtered"])
def test_what_moves_from_one_state_to_another_while_it_is_counted_is_left_to_do(proxy, wanted):
    queue = memory_queue()
    queue.push(1, id="first", project="theirs")
    queue.push(1, id="second", project="ours", depends_on=["first"], delay=60)
    lease = queue.claim("other")
    stats = moving(queue, [lambda: queue.ack(lease)])
    assert remaining(proxy(queue, stats=stats), wanted).runnable > 0
    queue.push(1, id="third", project="ours", priority="high")
    again = queue.claim("other")
    stats = moving(queue, [lambda: queue.nack(again, delay=60)])
    assert remaining(proxy(queue, stats=stats), wanted).runnable > 1


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
