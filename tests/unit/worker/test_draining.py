"""A worker that ends when nothing is left to do."""

from __future__ import annotations

import dfq


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
