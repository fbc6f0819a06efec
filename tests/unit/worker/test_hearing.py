"""What a supervisor hears of a child."""

from __future__ import annotations

import math
import os
import threading

import pytest

from dfq.testing import FakeClock
from dfq.worker.hearing import START_SECONDS, Hearing
from tests.patience import patience

LONG = patience(20.0)


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def listen(clock):
    """A hearing that has begun; the child's end, and what happens when it is ready."""
    ends = []

    def listen(watchdog_seconds):
        ready = threading.Event()
        hearing = Hearing(clock, watchdog_seconds, ready.set)
        ends.append(os.dup(hearing.descriptor))
        hearing.begin()
        return hearing, ends[-1], ready

    yield listen
    for end in ends:
        os.close(end)


def test_a_child_that_hangs_while_it_starts_has_a_time_to_be_ready_by(listen, clock):
    hearing, end, ready = listen(60.0)
    assert hearing.hung_at == clock.boot() + START_SECONDS
    clock.advance(100.0)
    os.write(end, b"READY=1")
    assert ready.wait(LONG)
    assert hearing.hung_at == clock.boot() + 60.0


def test_a_child_that_nobody_watches_may_take_its_time(listen):
    hearing, end, ready = listen(None)
    assert hearing.hung_at == math.inf
    os.write(end, b"READY=1")
    assert ready.wait(LONG)
    assert hearing.hung_at == math.inf
