"""What is particular to the memory engine; the rest is in tests/conformance."""

from __future__ import annotations

import sys

import pytest

import dfq
from dfq.engines.memory import MemoryQueue
from dfq.engines.memory_index import Bag, ReadyIndex, Timetable
from dfq.testing import FakeClock, SeededChance


def test_a_name_is_one_queue_and_no_name_is_nobody_elses():
    shared = dfq.open("memory://test-memory-shared")
    shared.push(1, id="a")
    assert dfq.open("memory://test-memory-shared").get("a") is not None
    assert dfq.open("memory://test-memory-other").get("a") is None
    private = dfq.open("memory://")
    private.push(1, id="a")
    assert dfq.open("memory://").get("a") is None


def test_a_second_handle_lives_by_the_clock_of_the_first():
    clock = FakeClock()
    MemoryQueue("test-memory-clock", clock=clock)
    assert MemoryQueue("test-memory-clock").clock is clock


def test_a_queue_says_what_it_is():
    assert repr(MemoryQueue("named")) == "<MemoryQueue memory://named>"


def count_calls(function):
    """How many Python calls ``function`` makes: a cost that no busy machine changes."""
    calls = 0

    def count(frame, event, argument):
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize(
    "filter", [dfq.Filter(), dfq.Filter(project="p"), dfq.Filter(labels=("rare",))], ids=repr
)
def test_a_claim_costs_the_same_however_many_tasks_wait(filter):
    costs = []
    for depth in (10, 3_000):
        queue = MemoryQueue(clock=FakeClock(), chance=SeededChance())
        queue.push_many(queue.new_task(1, project="p") for _ in range(depth))
        queue.push(1, project="p", labels=["rare"], priority=0)
        queue.push_many(queue.new_task(1, delay=60, ttl=900) for _ in range(depth))
        costs.append(count_calls(lambda queue=queue: queue.claim("w", filter=filter)))
    assert costs[1] <= costs[0] + 5


def test_a_bag_gives_back_what_was_put_in():
    bag, chance = Bag(), SeededChance()
    for i in range(50):
        bag.add(f"t{i}")
    bag.remove("t49")
    bag.remove("t0")
    drawn = []
    while bag:
        drawn.append(bag.any(chance))
        bag.remove(drawn[-1])
    assert sorted(drawn) == sorted(f"t{i}" for i in range(1, 49))
    assert "t5" not in bag


def test_every_task_of_a_priority_has_the_same_chance():
    queue = MemoryQueue(clock=FakeClock())
    many = [queue.push(1, id=f"many{i}", project="many") for i in range(9)]
    one = queue.push(1, id="one", project="one")
    index, chance = ReadyIndex(), SeededChance(3)
    for task in [*many, one]:
        index.add(task)
    for filter in (dfq.Filter(), dfq.Filter(names=("",))):
        drawn = [index.choose(filter, chance) for _ in range(2_000)]
        assert 120 < drawn.count("one") < 280


def test_a_timetable_hands_out_what_is_due_and_forgets_what_was_moved():
    table = Timetable()
    for i in range(500):
        table.set("moved", 1_000.0 - i)
    table.set("moved", 50.0)
    table.set("early", 10.0)
    table.set("gone", 5.0)
    table.forget("gone")
    table.forget("never there")
    assert table.next() == 10.0
    assert list(table.take_due(9.0)) == []
    assert list(table.take_due(60.0)) == ["early", "moved"]
    assert table.next() is None
    assert len(table._heap) < 100


def test_leases_that_end_leave_nothing_behind():
    queue = MemoryQueue(clock=FakeClock(), chance=SeededChance())
    for i in range(1_000):
        queue.push(i, id="again", ttl=1e6)
        queue.push(i, id="next", depends_on=["again"])
        queue.ack(queue.heartbeat(queue.claim("w")))
        queue.purge()
    store = queue._store
    assert store.entries == {}
    assert len(store._dependents) == 0
    assert all(len(t._heap) < 100 for t in (store.delays, store.lifetimes, store.deadlines))


def test_a_wait_ends_when_a_delay_does():
    queue = MemoryQueue()
    queue.push(1, delay=0.05)
    assert queue.claim("w") is None
    assert queue.wait(60) is True
    assert queue.claim("w") is not None


def test_a_wait_does_not_spin_on_tasks_that_a_filter_left():
    queue = MemoryQueue()
    queue.push(1, project="other")
    assert queue.claim("w", filter=dfq.Filter(project="mine")) is None
    assert queue.wait(0.01) is False
    queue.push(1, project="mine")
    assert queue.wait(60) is True


def test_closing_wakes_who_waits_next():
    queue = MemoryQueue()
    assert queue.claim("w") is None
    queue.close()
    assert queue.wait(60) is False


def test_the_message_about_a_circle_names_the_way_round():
    queue = MemoryQueue()
    queue.push(1, id="a", depends_on=["b"])
    queue.push(1, id="b", depends_on=["c"])
    with pytest.raises(dfq.DependencyCycle, match="'c' waits for 'a' waits for 'b' waits for 'c'"):
        queue.push(1, id="c", depends_on=["a"])


def test_doctor_mentions_that_the_queue_is_paused():
    queue = MemoryQueue()
    queue.pause("backup")
    (finding,) = queue.doctor()
    assert finding.level == "warning"
    assert "backup" in finding.message


def test_a_state_that_no_task_is_ever_in_names_the_nearest():
    queue = MemoryQueue()
    with pytest.raises(dfq.InvalidConfig, match=r"'complete'.*'completed'"):
        queue.list("complete")
    with pytest.raises(dfq.InvalidConfig, match="'fail'"):
        queue.purge("fail")
