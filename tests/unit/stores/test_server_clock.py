from __future__ import annotations

import pytest

from dfq.stores.server_clock import ServerClock, seconds_of
from dfq.testing import FakeClock


def test_nobody_knows_before_the_first_answer():
    assert ServerClock(FakeClock()).now() is None


def test_only_the_running_of_our_clock_counts():
    clock = FakeClock(wall=0)
    server = ServerClock(clock)
    server.saw(5000.0)
    clock.jump_wall(86_400)
    clock.advance(2.5)
    assert server.now() == 5002.5
    assert server.ahead_of(clock.wall()) == 5002.5 - 86_402.5


def test_a_slow_answer_does_not_turn_it_back():
    clock = FakeClock()
    server = ServerClock(clock)
    server.saw(5000.0)
    clock.advance(20)
    server.saw(5005.0)
    assert server.now() == 5020.0
    server.saw(5020.9)
    assert server.now() == 5020.9


def test_a_server_whose_clock_was_set_back_is_believed_after_a_while():
    clock = FakeClock()
    server = ServerClock(clock)
    server.saw(5000.0)
    clock.advance(61)
    server.saw(4000.0)
    assert server.now() == 4000.0


@pytest.mark.parametrize(
    ("date", "seconds"),
    [
        ("Thu, 01 Jan 1970 00:00:01 GMT", 1.0),
        ("Wed, 18 Nov 2026 09:03:00 GMT", 1_794_992_580.0),
        ("Wed, 18 Nov 2026 09:03:00 CET", None),
        ("2026-11-18T09:03:00Z", None),
        ("Wed, 18 Növ 2026 09:03:00 GMT", None),
        ("", None),
    ],
)
def test_http_dates_are_read(date, seconds):
    assert seconds_of(date) == seconds
