from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfq import DependencyCycle, InvalidTask, Policy, RetryPolicy
from dfq.task import MAX_ID_LENGTH, PRIORITIES, check_id, check_priority, make_task
from dfq.testing import FakeClock, SeededChance


def make(payload=1, **options):
    return make_task(
        payload, policy=Policy(), clock=FakeClock(wall=1_000), chance=SeededChance(1), **options
    )


@given(st.text(max_size=MAX_ID_LENGTH + 5))
def test_an_id_is_taken_only_if_it_is_a_safe_file_name(text):
    try:
        check_id(text)
    except InvalidTask:
        return
    assert 1 <= len(text) <= MAX_ID_LENGTH
    assert text.isascii()
    assert text[0] != "."
    assert not set(text) & set('/\\\0 \n:*?"<>|')


@pytest.mark.parametrize("value", [None, 1, b"a", ["a"]], ids=repr)
def test_an_id_is_a_string(value):
    with pytest.raises(InvalidTask, match="string"):
        check_id(value)


def test_the_message_about_a_long_id_is_not_long():
    with pytest.raises(InvalidTask) as caught:
        check_id("x" * 100_000)
    assert len(str(caught.value)) < 200


def test_an_id_ending_in_a_newline_is_refused():
    with pytest.raises(InvalidTask):
        check_id("a\n")


@pytest.mark.parametrize(("given", "number"), [*PRIORITIES.items(), ("HIGH", 100), ("-7", -7)])
def test_a_priority_has_a_name_or_a_number(given, number):
    assert check_priority(given) == number
    assert make(priority=given).priority == number


@pytest.mark.parametrize("bad", ["urgent", "", "1.5", 1.5, True, None, 32_768, -32_768, "٣"])
def test_any_other_priority_is_refused(bad):
    with pytest.raises(InvalidTask, match="priority"):
        check_priority(bad)


def test_labels_and_dependencies_keep_their_order_and_lose_their_doubles():
    task = make(labels=["b", "a", "b"], depends_on=["z", "y", "z"])
    assert task.labels == ("b", "a")
    assert task.depends_on == ("z", "y")


@pytest.mark.parametrize(
    "options",
    [
        {"labels": "ab"},
        {"labels": [""]},
        {"labels": [1]},
        {"labels": ["a\0"]},
        {"labels": ["\ud800"]},
        {"project": "x" * 201},
        {"name": "a\tb"},
        {"depends_on": "ab"},
        {"depends_on": [None]},
        {"correlation_id": ""},
        {"correlation_id": "x" * 129},
        {"correlation_id": "naïve"},
        {"max_attempts": 0},
        {"max_attempts": 2.0},
        {"max_attempts": True},
        {"delay": "1"},
        {"delay": float("inf")},
        {"delay": timedelta(seconds=-1)},
        {"ttl": float("nan")},
        {"not_before": -5},
        {"not_before": "tomorrow"},
    ],
    ids=ascii,
)
def test_a_bad_option_is_refused(options):
    with pytest.raises(InvalidTask):
        make(**options)


def test_times_are_counted_from_the_clock_that_was_handed_in():
    task = make(delay=5, ttl=timedelta(seconds=7))
    assert (task.created_at, task.not_before, task.expires_at) == (1_000, 1_005, 1_007)


def test_a_date_needs_a_time_zone():
    with pytest.raises(InvalidTask, match="time zone"):
        make(not_before=datetime(2030, 1, 1))
    in_zone = datetime(1970, 1, 1, 1, 0, 9, tzinfo=timezone(timedelta(hours=1)))
    assert make(not_before=in_zone).not_before == 9
    assert make(not_before=datetime(1970, 1, 1, 0, 0, 9, tzinfo=UTC)).not_before == 9


def test_delay_and_not_before_together_are_refused():
    with pytest.raises(InvalidTask, match="not both"):
        make(delay=1, not_before=1)


def test_a_task_can_not_depend_on_itself():
    with pytest.raises(DependencyCycle):
        make(id="a", depends_on=["b", "a"])


def test_a_made_id_is_known_as_made():
    assert not make().id_given
    assert make(id="a").id_given
    assert check_id(make().id) == make().id


def test_a_new_task_is_frozen_and_keeps_its_options():
    retry = RetryPolicy()
    task = make({"a": 1}, id="a", name="n", project="p", max_attempts=2, retry=retry)
    assert (task.payload, task.name, task.project) == (b'{"a":1}', "n", "p")
    assert (task.max_attempts, task.retry) == (2, retry)
    with pytest.raises(dataclasses.FrozenInstanceError):
        task.id = "b"
