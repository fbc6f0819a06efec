from __future__ import annotations

import pytest

from dfq import Filter, InvalidConfig


def claimed_ids(queue, **options):
    ids = []
    while lease := queue.claim("w", **options):
        ids.append(lease.task_id)
    return ids


def test_an_empty_queue_gives_nothing(queue):
    assert queue.claim("w") is None
    assert queue.claim_many(5, "w") == []


def test_a_lease_says_who_holds_what_since_when_until_when(engine, clock):
    queue = engine.open_queue(lease_seconds=90)
    task = queue.push({"x": 1}, id="a")
    lease = queue.claim("worker-1")
    assert (lease.task, lease.task_id, lease.worker_id) == (task, "a", "worker-1")
    assert (lease.fence, lease.attempt) == (1, 1)
    assert lease.acquired_at == lease.heartbeat_at == pytest.approx(clock.wall(), abs=0.01)
    assert lease.expires_at == pytest.approx(clock.wall() + 90, abs=0.01)
    assert lease.lease_id
    assert lease.pid > 0


def test_a_claimed_task_is_claimed_by_nobody_else(engine, queue):
    queue.push(1, id="a")
    assert queue.claim("one").task_id == "a"
    assert queue.claim("two") is None
    assert engine.reopen().claim("three") is None
    assert queue.get("a").state == "leased"


def test_a_worker_without_a_name_gets_one_of_its_own(engine, queue):
    queue.push(1)
    queue.push(2)
    first, second = queue.claim(), queue.claim()
    assert first.worker_id == second.worker_id != ""
    queue.push(3)
    assert engine.reopen().claim().worker_id


def test_two_leases_are_never_mistaken_for_each_other(queue):
    queue.push(1)
    queue.push(2)
    first, second = queue.claim_many(2, "same-name")
    assert first.lease_id != second.lease_id


def test_higher_priorities_come_first(queue):
    for priority in (0, 200, -5, 50, 100):
        queue.push(1, id=f"p{priority}", priority=priority)
    assert claimed_ids(queue) == ["p200", "p100", "p50", "p0", "p-5"]


def test_priorities_have_names(queue):
    for name in ("low", "normal", "high", "critical"):
        queue.push(1, id=name, priority=name)
    assert claimed_ids(queue) == ["critical", "high", "normal", "low"]


def test_an_urgent_task_overtakes_those_already_waiting(queue):
    for i in range(20):
        queue.push(i)
    queue.claim("w")
    queue.push("now", id="urgent", priority="critical")
    assert queue.claim("w").task_id == "urgent"


def test_within_a_priority_the_order_is_shuffled(queue):
    pushed = [f"t{i:03}" for i in range(60)]
    queue.push_many(queue.new_task(1, id=i) for i in pushed)
    order = claimed_ids(queue)
    assert order != pushed
    assert sorted(order) == pushed


def test_claim_many_takes_at_most_the_limit_and_highest_first(queue):
    for priority in range(10):
        queue.push(1, id=f"p{priority}", priority=priority)
    first = [lease.task_id for lease in queue.claim_many(4, "w")]
    assert sorted(first) == ["p6", "p7", "p8", "p9"]
    assert len(queue.claim_many(100, "w")) == 6
    assert queue.claim_many(1, "w") == []


@pytest.mark.parametrize("limit", [-1, 1.5, "3", True], ids=repr)
def test_a_limit_that_is_no_count_is_refused(queue, limit):
    with pytest.raises(InvalidConfig):
        queue.claim_many(limit)


def test_a_limit_of_zero_takes_nothing(queue):
    queue.push(1)
    assert queue.claim_many(0, "w") == []
    assert queue.stats().ready == 1


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), "60"], ids=repr)
def test_a_lease_time_that_is_none_is_refused(queue, seconds):
    queue.push(1)
    with pytest.raises(InvalidConfig):
        queue.claim("w", lease_seconds=seconds)
    assert queue.stats().ready == 1


def test_a_worker_name_that_can_not_be_printed_is_refused(queue):
    for bad in ("", "a\nb", "x" * 201):
        with pytest.raises(InvalidConfig):
            queue.claim(bad)


def push_a_mix(queue):
    queue.push(1, id="a-red", name="paint", project="a", labels=["red"], priority=10)
    queue.push(1, id="a-both", name="paint", project="a", labels=["red", "blue"], priority=20)
    queue.push(1, id="b-blue", name="wash", project="b", labels=["blue"], priority=30)
    queue.push(1, id="plain", priority=40)


@pytest.mark.parametrize(
    ("filter", "wanted"),
    [
        (Filter(), {"a-red", "a-both", "b-blue", "plain"}),
        (Filter(project="a"), {"a-red", "a-both"}),
        (Filter(project="nobody"), set()),
        (Filter(labels=("red",)), {"a-red", "a-both"}),
        (Filter(labels=("red", "blue")), {"a-both"}),
        (Filter(min_priority=20), {"a-both", "b-blue", "plain"}),
        (Filter(max_priority=20), {"a-red", "a-both"}),
        (Filter(min_priority=20, max_priority=30), {"a-both", "b-blue"}),
        (Filter(names=("wash",)), {"b-blue"}),
        (Filter(names=("wash", "paint")), {"a-red", "a-both", "b-blue"}),
        (Filter(names=("",)), {"plain"}),
        (Filter(names=()), set()),
        (Filter(project="a", labels=("blue",), names=("paint",), max_priority=20), {"a-both"}),
    ],
    ids=lambda value: repr(value if isinstance(value, Filter) else sorted(value)),
)
def test_a_filter_takes_just_what_it_asks_for(queue, filter, wanted):
    push_a_mix(queue)
    assert {record.task.id for record in queue.list(filter=filter)} == wanted
    ids = claimed_ids(queue, filter=filter)
    assert set(ids) == wanted
    assert len(ids) == len(wanted)
    assert ids == sorted(ids, key=lambda i: -queue.get(i).task.priority)
    assert queue.stats().ready == 4 - len(wanted)


def test_what_a_filter_left_the_next_claim_finds(queue):
    push_a_mix(queue)
    assert queue.claim("w", filter=Filter(project="nobody")) is None
    assert queue.claim("w", filter=Filter(project="b")).task_id == "b-blue"
    assert set(claimed_ids(queue)) == {"plain", "a-red", "a-both"}


def test_claim_many_obeys_the_filter(queue):
    push_a_mix(queue)
    leases = queue.claim_many(10, "w", filter=Filter(labels=("blue",)))
    assert {lease.task_id for lease in leases} == {"a-both", "b-blue"}


def test_a_task_pushed_by_another_handle_is_found(engine, queue):
    assert queue.claim("w") is None
    engine.reopen().push(1, id="new")
    assert queue.claim("w").task_id == "new"
