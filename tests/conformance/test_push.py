from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from dfq import DuplicateTask, InvalidTask, NewTask, RetryPolicy
from dfq.engines import base
from dfq.task import MAX_ID_LENGTH


def test_a_pushed_task_is_ready_with_everything_it_was_given(queue, clock):
    retry = RetryPolicy(base_seconds=1, cap_seconds=9, factor=3)
    task = queue.push(
        {"url": "https://example.org", "n": [1, 2.5, None, True, "é𝄞"]},
        id="a-1",
        name="fetch",
        priority="high",
        labels=["eu", "slow"],
        project="crawl",
        max_attempts=3,
        retry=retry,
        correlation_id="req-7",
    )
    record = queue.get("a-1")
    assert record.task == task
    assert record.state == "ready"
    assert task.payload == {"url": "https://example.org", "n": [1, 2.5, None, True, "é𝄞"]}
    assert (task.name, task.priority, task.project) == ("fetch", 100, "crawl")
    assert task.labels == ("eu", "slow")
    assert (task.max_attempts, task.retry, task.correlation_id) == (3, retry, "req-7")
    assert (task.attempts, task.errors, task.created_at) == (0, (), clock.wall())
    assert (record.lease, record.result, record.finished_at) == (None, None, None)
    assert dict(record.blocked_by) == {}


def test_a_task_pushed_bare_gets_an_id_a_correlation_id_and_the_defaults(engine):
    queue = engine.open_queue(max_attempts=4)
    first, second = queue.push(1), queue.push(1)
    assert first.id != second.id
    assert first.correlation_id
    assert first.correlation_id != second.correlation_id
    assert (first.priority, first.max_attempts) == (50, 4)
    assert queue.get(first.id).task == first


def test_ids_made_later_sort_later(queue, clock):
    first = queue.push(1)
    clock.advance(0.01)
    assert first.id < queue.push(1).id


@pytest.mark.parametrize(
    "payload",
    [None, True, 0, -1, 1.5, 2**63, "", "\x00", "line\nline", [], {}, {"": [{}]}, "\U0010ffff"],
    ids=repr,
)
def test_what_comes_out_is_what_went_in(queue, payload):
    task_id = queue.push(payload).id
    assert queue.get(task_id).task.payload == payload
    claimed = queue.claim().task.payload
    assert claimed == payload
    assert type(claimed) is type(payload)


def test_changing_a_claimed_payload_does_not_change_the_stored_one(queue):
    payload = {"steps": [1]}
    queue.push(payload, id="a")
    payload["steps"].append(2)
    lease = queue.claim()
    lease.task.payload["steps"].append(3)
    queue.nack(lease, delay=0)
    assert queue.claim().task.payload == {"steps": [1]}


def test_pushing_an_id_twice_says_so_and_changes_nothing(queue):
    queue.push("first", id="a", priority=1)
    with pytest.raises(DuplicateTask, match="'a'") as caught:
        queue.push("second", id="a", priority=2)
    assert (caught.value.task_id, caught.value.state) == ("a", "ready")
    record = queue.get("a")
    assert (record.task.payload, record.task.priority) == ("first", 1)
    assert queue.stats().pending == 1


def test_an_id_is_taken_in_every_state(queue):
    queue.push(1, id="leased")
    queue.claim()
    queue.push(1, id="done")
    queue.ack(queue.claim())
    queue.push(1, id="failed")
    queue.bury("failed")
    queue.push(1, id="later", delay=60)
    queue.push(1, id="blocked", depends_on=["later"])
    for task_id in ("leased", "done", "failed", "later", "blocked"):
        with pytest.raises(DuplicateTask):
            queue.push(2, id=task_id)
        assert queue.get(task_id).task.payload == 1


def test_another_handle_sees_the_push_and_the_duplicate(engine, queue):
    queue.push(1, id="a")
    other = engine.reopen()
    assert other.get("a").task.payload == 1
    with pytest.raises(DuplicateTask):
        other.push(2, id="a")


@pytest.mark.parametrize(
    "bad",
    ["", ".", "..", ".hidden", "a/b", "../a", "a\0b", "a b", "ü", "a" * (MAX_ID_LENGTH + 1)],
    ids=ascii,
)
def test_an_id_that_could_leave_the_folder_is_refused(queue, bad):
    with pytest.raises(InvalidTask):
        queue.push(1, id=bad)
    assert queue.stats().pending == 0


@pytest.mark.parametrize("good", ["a", "A", "-", "_", "a.b", "0", "x" * MAX_ID_LENGTH, "a..b"])
def test_an_id_of_plain_characters_is_taken_to_the_end(queue, good):
    queue.push(1, id=good)
    queue.ack(queue.claim(), "out")
    assert queue.get(good).result == "out"


def test_ids_that_differ_only_in_case_are_two_tasks(queue):
    queue.push("small", id="task")
    queue.push("large", id="TASK")
    assert queue.get("task").task.payload == "small"
    assert queue.get("TASK").task.payload == "large"


@pytest.mark.parametrize(
    "payload",
    [float("nan"), [float("inf")], {1: 2}, {"a": {1, 2}}, object(), b"bytes", "\ud800", 2**70],
    ids=["nan", "infinity", "key", "set", "object", "bytes", "surrogate", "huge"],
)
def test_a_payload_that_is_not_json_is_refused(queue, payload):
    with pytest.raises(InvalidTask):
        queue.push(payload)
    assert queue.stats().pending == 0


def test_a_payload_beyond_the_limit_is_refused_and_one_at_the_limit_is_taken(engine):
    queue = engine.open_queue(max_payload_bytes=100)
    queue.push("x" * 98, id="fits")
    with pytest.raises(InvalidTask, match="101"):
        queue.push("x" * 99)
    assert queue.stats().pending == 1
    assert queue.get("fits").task.payload == "x" * 98


def test_a_deeply_nested_payload_is_refused(queue):
    payload: list = []
    for _ in range(10_000):
        payload = [payload]
    with pytest.raises(InvalidTask):
        queue.push(payload)


@pytest.mark.parametrize(
    "options",
    [
        {"priority": "urgent"},
        {"priority": 40_000},
        {"labels": "one"},
        {"labels": ["a\nb"]},
        {"project": ""},
        {"name": "x" * 201},
        {"max_attempts": 0},
        {"delay": -1},
        {"delay": float("nan")},
        {"ttl": -1},
        {"delay": 1, "not_before": 1},
        {"not_before": datetime(2030, 1, 1)},
        {"correlation_id": "two words"},
        {"depends_on": ["../x"]},
    ],
    ids=repr,
)
def test_an_option_that_makes_no_sense_is_refused(queue, options):
    with pytest.raises(InvalidTask):
        queue.push(1, **options)
    assert queue.stats().pending == 0


def test_push_many_stores_all_and_reports_duplicates_in_order(queue):
    queue.push("old", id="b")
    pushed = queue.push_many(queue.new_task(f"new {i}", id=i) for i in ["a", "b", "c", "a"])
    assert [(p.id, p.created) for p in pushed] == [
        ("a", True),
        ("b", False),
        ("c", True),
        ("a", False),
    ]
    assert pushed[1].state == "ready"
    assert queue.get("a").task.payload == "new a"
    assert queue.get("b").task.payload == "old"
    assert queue.stats().ready == 3


def test_push_many_says_where_the_duplicate_stands(queue):
    batch = [queue.new_task(1, id="a", delay=60), queue.new_task(1, id="a")]
    assert [p.state for p in queue.push_many(batch)] == [None, "delayed"]


def test_push_many_of_the_same_object_twice_stores_one(queue):
    task = queue.new_task(1, id="a")
    assert [p.created for p in queue.push_many([task, task])] == [True, False]
    assert queue.stats().pending == 1


def test_push_many_of_nothing_is_nothing(queue):
    assert queue.push_many([]) == []


def test_push_many_takes_more_than_one_lot(queue, monkeypatch):
    monkeypatch.setattr(base, "LOT", 100)
    pushed = queue.push_many(queue.new_task(i, id=f"t{i}") for i in range(345))
    assert [p.id for p in pushed] == [f"t{i}" for i in range(345)]
    assert all(p.created for p in pushed)
    assert queue.stats().ready == 345
    assert queue.get("t344").task.payload == 344


def test_push_many_takes_only_what_new_task_made(queue):
    with pytest.raises(InvalidTask, match="new_task"):
        queue.push_many([{"id": "a"}])
    assert isinstance(queue.new_task(1), NewTask)


def test_a_delay_can_be_a_timedelta_and_not_before_a_datetime(queue, clock):
    at = datetime.fromtimestamp(clock.wall() + 60, UTC)
    assert queue.push(1, delay=timedelta(minutes=1)).not_before == clock.wall() + 60
    assert queue.push(1, not_before=at).not_before == clock.wall() + 60
    assert queue.push(1, ttl=timedelta(minutes=1)).expires_at == clock.wall() + 60
    assert queue.stats().delayed == 2
