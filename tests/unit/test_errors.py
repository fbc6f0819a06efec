from __future__ import annotations

import inspect

import pytest

import dfq
from dfq import errors

ALL = [
    value
    for value in vars(errors).values()
    if inspect.isclass(value) and issubclass(value, Exception)
]


@pytest.mark.parametrize("error", ALL, ids=lambda e: e.__name__)
def test_every_error_is_in_one_tree_is_exported_and_says_what_it_means(error):
    assert issubclass(error, dfq.DfqError)
    assert getattr(dfq, error.__name__) is error
    assert error.__name__ in dfq.__all__
    assert error.__doc__
    assert 1 <= error.exit_code <= 125


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (dfq.InvalidTask, ValueError),
        (dfq.InvalidPolicy, ValueError),
        (dfq.InvalidConfig, ValueError),
        (dfq.InvalidURL, ValueError),
        (dfq.DuplicateTask, ValueError),
        (dfq.DependencyCycle, ValueError),
        (dfq.TaskNotFound, LookupError),
        (dfq.WrongState, RuntimeError),
        (dfq.LeaseLost, RuntimeError),
        (dfq.QueueBusy, TimeoutError),
        (dfq.QueueUnavailable, OSError),
        (dfq.HandlerError, ImportError),
    ],
    ids=lambda e: e.__name__,
)
def test_an_error_is_also_the_builtin_one_would_expect(error, builtin):
    assert issubclass(error, builtin)


def test_every_way_to_lose_a_lease_is_a_lost_lease():
    for error in (dfq.LeaseTaken, dfq.LeaseNotHeld, dfq.AlreadyCompleted):
        assert issubclass(error, dfq.LeaseLost)
        assert error.exit_code == dfq.LeaseLost.exit_code


def test_a_duplicate_says_which_task_and_where_it_stands():
    error = dfq.DuplicateTask("a-1", "failed")
    assert (error.task_id, error.state) == ("a-1", "failed")
    assert "'a-1'" in str(error)
    assert "failed" in str(error)
    assert "nothing was changed" in str(error)


def test_retry_later_carries_its_delay():
    assert dfq.RetryLater("busy", delay=5).delay == 5
    assert dfq.RetryLater().delay is None
