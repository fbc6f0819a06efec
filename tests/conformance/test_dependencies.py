from __future__ import annotations

import pytest

from dfq import DependencyCycle
from dfq.engines import base


def test_a_task_waits_until_its_dependency_is_completed(queue):
    queue.push(1, id="first")
    queue.push(1, id="second", depends_on=["first"])
    record = queue.get("second")
    assert (record.state, dict(record.blocked_by)) == ("blocked", {"first": "pending"})
    lease = queue.claim("w")
    assert lease.task_id == "first"
    assert queue.claim("w") is None
    queue.ack(lease)
    assert queue.get("second").state == "ready"
    assert dict(queue.get("second").blocked_by) == {}
    assert queue.claim("w").task_id == "second"


def test_a_task_waits_for_all_its_dependencies(queue):
    names = ["a", "b", "c"]
    for name in names:
        queue.push(1, id=name, priority=1)
    queue.push(1, id="last", depends_on=names, priority=9)
    for left in (3, 2, 1):
        assert len(queue.get("last").blocked_by) == left
        lease = queue.claim("w")
        assert lease.task_id in names
        queue.ack(lease)
    assert queue.claim("w").task_id == "last"


def test_a_dependency_completed_before_is_met_at_once(queue):
    queue.push(1, id="first")
    queue.ack(queue.claim("w"))
    queue.push(1, id="second", depends_on=["first"])
    assert queue.get("second").state == "ready"
    assert queue.claim("w").task_id == "second"


def test_a_failed_dependency_is_reported_and_never_silently_waited_for(queue):
    queue.push(1, id="first", max_attempts=1)
    queue.push(1, id="second", depends_on=["first"])
    queue.nack(queue.claim("w"))
    record = queue.get("second")
    assert (record.state, dict(record.blocked_by)) == ("blocked", {"first": "failed"})
    stats = queue.stats()
    assert (stats.blocked, stats.stuck) == (1, 1)
    (finding,) = [f for f in queue.doctor() if f.level != "ok"]
    assert "first" in finding.message + finding.advice
    assert "second" in finding.subject + finding.message
    assert queue.claim("w") is None


def test_an_unknown_dependency_is_reported(queue):
    queue.push(1, id="second", depends_on=["nobody"])
    assert dict(queue.get("second").blocked_by) == {"nobody": "unknown"}
    assert (queue.stats().blocked, queue.stats().stuck) == (1, 1)
    assert any("nobody" in f.message for f in queue.doctor() if f.level != "ok")
    assert queue.claim("w") is None


def test_a_pending_dependency_is_no_trouble(queue):
    queue.push(1, id="first")
    queue.push(1, id="second", depends_on=["first"])
    assert (queue.stats().blocked, queue.stats().stuck) == (1, 0)
    assert [f for f in queue.doctor() if f.level != "ok"] == []


def test_a_dependency_may_be_pushed_afterwards(queue):
    queue.push(1, id="second", depends_on=["first"])
    queue.push(1, id="first")
    assert dict(queue.get("second").blocked_by) == {"first": "pending"}
    queue.ack(queue.claim("w"))
    assert queue.claim("w").task_id == "second"


def test_a_requeued_dependency_lets_the_task_go_on(queue):
    queue.push(1, id="first", max_attempts=1)
    queue.push(1, id="second", depends_on=["first"])
    queue.nack(queue.claim("w"))
    queue.requeue("first")
    assert dict(queue.get("second").blocked_by) == {"first": "pending"}
    queue.ack(queue.claim("w"))
    assert queue.claim("w").task_id == "second"


def test_a_dependency_named_twice_counts_once(queue):
    task = queue.push(1, id="second", depends_on=["first", "first"])
    assert task.depends_on == ("first",)
    queue.push(1, id="first")
    queue.ack(queue.claim("w"))
    assert queue.claim("w").task_id == "second"


def test_a_chain_runs_in_order(queue):
    ids = [f"t{i}" for i in range(12)]
    for task_id, dependency in reversed(list(zip(ids[1:], ids, strict=False))):
        queue.push(1, id=task_id, depends_on=[dependency])
    queue.push(1, id=ids[0])
    order = []
    while lease := queue.claim("w"):
        order.append(lease.task_id)
        queue.ack(lease)
    assert order == ids


def test_another_handles_ack_unblocks_the_task(engine, queue):
    queue.push(1, id="first")
    queue.push(1, id="second", depends_on=["first"])
    lease = queue.claim("w")
    assert queue.claim("w") is None
    engine.reopen().ack(lease)
    assert queue.claim("w").task_id == "second"


def test_a_blocked_task_is_blocked_for_filters_and_priorities_too(queue):
    queue.push(1, id="first", priority="low")
    queue.push(1, id="second", priority="critical", depends_on=["first"])
    assert [lease.task_id for lease in queue.claim_many(10, "w")] == ["first"]


def test_a_task_that_depends_on_itself_is_refused(queue):
    with pytest.raises(DependencyCycle, match="a"):
        queue.push(1, id="a", depends_on=["a"])
    assert queue.get("a") is None


def test_a_circle_through_pending_tasks_is_refused_and_nothing_is_stored(queue):
    queue.push(1, id="a", depends_on=["b"])
    queue.push(1, id="b", depends_on=["c"])
    with pytest.raises(DependencyCycle, match="c"):
        queue.push(1, id="c", depends_on=["x", "a"])
    assert queue.get("c") is None
    queue.push(1, id="c", depends_on=["x"])
    assert queue.get("c").state == "blocked"


@pytest.mark.parametrize("failed", ["a", "b"])
def test_a_circle_through_a_failed_task_is_refused_for_it_may_be_requeued(queue, failed):
    queue.push(1, id="a", depends_on=["b"])
    queue.push(1, id="b", depends_on=["c"])
    queue.bury(failed)
    with pytest.raises(DependencyCycle, match="c"):
        queue.push(1, id="c", depends_on=["a"])
    assert queue.get("c") is None
    queue.requeue(failed)
    queue.push(1, id="c")
    assert queue.claim("w").task_id == "c"


def test_a_circle_is_seen_through_another_handle(engine, queue):
    queue.push(1, id="a", depends_on=["b"])
    with pytest.raises(DependencyCycle):
        engine.reopen().push(1, id="b", depends_on=["a"])


def test_a_circle_within_a_batch_is_refused_and_nothing_is_stored(queue):
    batch = [
        queue.new_task(1, id="fine"),
        queue.new_task(1, id="a", depends_on=["b"]),
        queue.new_task(1, id="b", depends_on=["a"]),
    ]
    with pytest.raises(DependencyCycle):
        queue.push_many(batch)
    assert list(queue.list()) == []


def test_a_circle_half_in_the_batch_is_refused(queue):
    queue.push(1, id="a", depends_on=["c"])
    batch = [
        queue.new_task(1, id="b", depends_on=["a"]),
        queue.new_task(1, id="c", depends_on=["b"]),
    ]
    with pytest.raises(DependencyCycle):
        queue.push_many(batch)
    assert [record.task.id for record in queue.list()] == ["a"]


def circle_in_a_later_lot(queue):
    yield queue.new_task(1, id="x", depends_on=["y"])
    yield queue.new_task(1, id="y", depends_on=["x"])


def circle_across_lots(queue):
    yield queue.new_task(1, id="x", depends_on=["t0"])


@pytest.mark.parametrize("circle", [circle_in_a_later_lot, circle_across_lots])
@pytest.mark.parametrize("bound", ["tasks", "bytes"])
def test_push_many_stores_lots_one_after_another(queue, circle, bound, monkeypatch):
    """So what stands before the lot that is refused is stored, and nothing of it and after it."""
    if bound == "tasks":
        monkeypatch.setattr(base, "LOT", 100)
    else:
        # The numbers below 100 are 190 bytes of JSON.
        monkeypatch.setattr(base, "LOT_BYTES", 190)

    def tasks():
        yield queue.new_task(0, id="t0", depends_on=["x"])
        for number in range(1, 150):
            yield queue.new_task(number, id=f"t{number}")
        yield from circle(queue)
        for number in range(150, 250):
            yield queue.new_task(number, id=f"t{number}")

    with pytest.raises(DependencyCycle):
        queue.push_many(tasks())
    assert {record.task.id for record in queue.list()} == {f"t{n}" for n in range(100)}
    # Pushed again without the circle, what is there already is left alone.
    again = queue.push_many(queue.new_task(n, id=f"t{n}") for n in range(150))
    assert [pushed.created for pushed in again] == [False] * 100 + [True] * 50


def test_two_ways_to_the_same_dependency_are_no_circle(queue):
    queue.push_many(
        [
            queue.new_task(1, id="top", depends_on=["left", "right"]),
            queue.new_task(1, id="left", depends_on=["bottom"]),
            queue.new_task(1, id="right", depends_on=["bottom"]),
            queue.new_task(1, id="bottom"),
        ]
    )
    assert queue.stats().blocked == 3
    order = []
    while lease := queue.claim("w"):
        order.append(lease.task_id)
        queue.ack(lease)
    assert (order[0], order[-1], len(order)) == ("bottom", "top", 4)


def test_a_duplicate_in_a_batch_does_not_count_for_circles(queue):
    queue.push(1, id="a")
    pushed = queue.push_many(
        [queue.new_task(2, id="a", depends_on=["b"]), queue.new_task(1, id="b", depends_on=["a"])]
    )
    assert [p.created for p in pushed] == [False, True]
    assert queue.get("a").task.depends_on == ()


def test_a_task_with_a_delay_and_a_dependency_needs_both(queue, clock):
    queue.push(1, id="first")
    queue.push(1, id="second", depends_on=["first"], delay=30)
    assert queue.get("second").state == "blocked"
    queue.ack(queue.claim("w"))
    assert queue.get("second").state == "delayed"
    assert queue.claim("w") is None
    clock.advance(31)
    assert queue.claim("w").task_id == "second"


def test_a_delay_that_ends_first_does_not_lift_the_dependency(queue, clock):
    queue.push(1, id="first", priority=0)
    queue.push(1, id="second", depends_on=["first"], delay=30, priority=9)
    clock.advance(31)
    lease = queue.claim("w")
    assert lease.task_id == "first"
    assert queue.claim("w") is None
    queue.ack(lease)
    assert queue.claim("w").task_id == "second"


def test_a_dependency_whose_record_is_deleted_is_unknown(queue):
    queue.push(1, id="first")
    queue.ack(queue.claim("w"))
    queue.push(1, id="second", depends_on=["first"])
    assert queue.purge("completed") == 1
    assert dict(queue.get("second").blocked_by) == {"first": "unknown"}
    assert queue.claim("w") is None
    assert queue.stats().stuck == 1
    queue.push(1, id="first")
    queue.ack(queue.claim("w"))
    assert queue.claim("w").task_id == "second"
