"""get, list, stats, doctor: looking changes nothing."""

from __future__ import annotations

import pytest

from dfq import Filter, InvalidConfig
from dfq.record import STATES


@pytest.fixture
def mixed(queue, clock):
    """One task in every state; completed-1 took its result."""
    queue.push(1, id="completed-1", project="p", labels=["x"])
    queue.ack(queue.claim("w"), "out")
    queue.push(1, id="failed-1", project="p", labels=["x"])
    queue.bury("failed-1", "bad")
    queue.push(1, id="leased-1", project="p", labels=["x", "y"])
    queue.claim("w")
    clock.advance(10)
    queue.push(1, id="ready-1", project="q", labels=["y"])
    queue.push(1, id="delayed-1", delay=100)
    queue.push(1, id="blocked-1", depends_on=["ready-1"], project="q")
    return queue


def test_get_of_an_unknown_task_is_none(queue):
    assert queue.get("nobody") is None


def test_every_state_can_be_listed(mixed):
    for state in STATES:
        (record,) = mixed.list(state)
        assert record.task.id == f"{state}-1"
        assert record.state == state
        assert record == mixed.get(record.task.id)


def test_a_list_of_all_has_each_task_once(mixed):
    ids = [record.task.id for record in mixed.list()]
    assert sorted(ids) == sorted(f"{state}-1" for state in STATES)


def test_a_list_can_be_filtered_and_limited(mixed):
    in_p = {record.task.id for record in mixed.list(filter=Filter(project="p"))}
    assert in_p == {"completed-1", "failed-1", "leased-1"}
    assert [r.task.id for r in mixed.list("failed", filter=Filter(labels=("x",)))] == ["failed-1"]
    assert list(mixed.list("failed", filter=Filter(labels=("y",)))) == []
    assert len(list(mixed.list(limit=2))) == 2
    assert len(list(mixed.list(limit=100))) == 6
    assert list(mixed.list(limit=0)) == []


@pytest.mark.parametrize("bad", ["redy", "pending", "", 1], ids=repr)
def test_a_state_that_no_task_is_ever_in_is_refused(mixed, bad):
    with pytest.raises(InvalidConfig, match="no task is ever"):
        list(mixed.list(bad))
    with pytest.raises(InvalidConfig, match="no task is ever"):
        mixed.purge(bad)
    assert len(list(mixed.list())) == len(STATES)


def test_a_misspelt_state_is_told_the_nearest(queue):
    with pytest.raises(InvalidConfig, match="did you mean 'ready'"):
        list(queue.list("redy"))


def test_a_list_can_be_changed_while_it_is_read(queue):
    for i in range(20):
        queue.push(i, id=f"t{i}")
    for record in queue.list("ready"):
        queue.bury(record.task.id)
    assert queue.stats().failed == 20


def test_stats_count_every_state(mixed):
    stats = mixed.stats()
    for state in STATES:
        assert getattr(stats, state) == 1
    assert (stats.pending, stats.stuck, stats.quarantined, stats.paused) == (4, 0, 0, False)


def test_stats_of_an_empty_queue_are_zero(queue):
    stats = queue.stats()
    assert (stats.pending, stats.completed, stats.failed) == (0, 0, 0)
    assert stats.oldest_ready_seconds is None
    assert (dict(stats.by_project), dict(stats.by_label)) == ({}, {})


def test_stats_count_what_is_pending_by_project_and_label(queue):
    queue.push(1, project="a", labels=["x", "y"])
    queue.push(1, project="a", labels=["x"])
    queue.push(1, project="b", delay=60)
    queue.push(1)
    stats = queue.stats()
    assert dict(stats.by_project) == {"a": 2, "b": 1}
    assert dict(stats.by_label) == {"x": 2, "y": 1}


def test_stats_tell_the_age_of_the_oldest_ready_task(queue, clock):
    queue.push(1, id="old", priority="high")
    clock.advance(30)
    queue.push(1, id="young")
    clock.advance(10)
    assert queue.stats().oldest_ready_seconds == pytest.approx(40, abs=0.01)
    queue.claim("w")
    assert queue.stats().oldest_ready_seconds == pytest.approx(10, abs=0.01)


def test_another_handle_sees_the_same(engine, mixed):
    other = engine.reopen()
    assert other.stats() == mixed.stats()
    by_id = {record.task.id: record for record in mixed.list()}
    assert {record.task.id: record for record in other.list()} == by_id


def test_looking_changes_nothing(mixed):
    before = {record.task.id: record for record in mixed.list()}
    mixed.stats()
    mixed.doctor()
    mixed.leases()
    assert {record.task.id: record for record in mixed.list()} == before


def test_a_healthy_queue_has_no_findings_that_worry(mixed):
    assert [f for f in mixed.doctor() if f.level != "ok"] == []


def test_the_url_opens_the_same_queue(engine, queue):
    queue.push(1, id="a")
    with engine.open_by_url(queue.url) as again:
        assert again.get("a").task.payload == 1
        assert again.url == queue.url


def test_a_queue_has_all_the_verbs(queue):
    import dfq

    assert isinstance(queue, dfq.Queue)
    assert queue.policy == dfq.Policy()
