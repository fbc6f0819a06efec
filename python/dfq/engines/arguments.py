"""Checks of what callers hand to the verbs; each error names what is wrong with it."""

from __future__ import annotations

from datetime import timedelta

from dfq.errors import InvalidConfig, InvalidTask
from dfq.policy import nearest
from dfq.record import STATES, State
from dfq.task import NewTask


def is_number(value: object) -> bool:
    """Whether ``value`` is a number; True and False are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def checked_state(state: State | None) -> State | None:
    """``state`` if there is such a one, or None for all."""
    if state is not None and state not in STATES:
        raise InvalidConfig(f"no task is ever {state!r}; {nearest(str(state), list(STATES))}")
    return state


def checked_new(task: object) -> NewTask:
    """``task`` if it may go into push_many."""
    if not isinstance(task, NewTask):
        raise InvalidTask(
            f"push_many takes tasks made by queue.new_task(...), not {type(task).__name__}"
        )
    return task


def checked_worker(worker_id: object) -> str:
    """``worker_id`` if it can be stored and shown."""
    if not isinstance(worker_id, str) or not 0 < len(worker_id) <= 200:
        raise InvalidConfig(f"the worker id {worker_id!r} must be a string of 1 to 200 characters")
    if not worker_id.isprintable():
        raise InvalidConfig(f"the worker id {worker_id!r} has characters that can't be printed")
    return worker_id


def in_seconds(delay: float | timedelta) -> float:
    """A delay as seconds, if it is one."""
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
    if not is_number(seconds) or not 0 <= seconds < 1e11:
        raise InvalidTask(f"delay is {delay!r}; it must be a number of seconds >= 0")
    return float(seconds)
