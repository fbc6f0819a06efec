"""The clock of a folder: the file system's, whatever this machine's clock shows."""

from __future__ import annotations

import pytest

from dfq.stores.disk_clock import KEEP_SECONDS, DiskClock
from dfq.testing import FakeClock

DAY = 86_400.0


class Disk:
    """A file system whose clock is this far ahead of the machine's first one."""

    def __init__(self, clock, ahead=0.0, follows=False):
        self._clock, self.ahead = clock, ahead
        self._start = None if follows else clock.wall() - clock.boot()
        self.measured = 0
        self.broken = False

    def time(self):
        if self._start is None:
            return self._clock.wall() + self.ahead
        return self._start + self._clock.boot() + self.ahead

    def measure(self):
        self.measured += 1
        if self.broken:
            raise PermissionError(13, "Permission denied")
        return self.time()


@pytest.fixture
def clock():
    return FakeClock()


@pytest.mark.parametrize("ahead", [DAY, -DAY, 5.0])
def test_another_machine_s_clock_is_the_one_that_counts(clock, ahead):
    disk = Disk(clock, ahead)
    told = DiskClock(clock, disk.measure)
    for _ in range(10):
        assert told.now() == disk.time()
        clock.advance(7)


def test_a_disk_of_this_machine_has_this_machine_s_clock_to_the_last_digit(clock):
    # What files are stamped with is a tick behind.
    disk = Disk(clock, -0.004, follows=True)
    told = DiskClock(clock, disk.measure)
    clock.advance(0.001)
    assert told.now() == clock.wall()


def test_it_is_measured_once_in_a_while(clock):
    disk = Disk(clock, DAY)
    told = DiskClock(clock, disk.measure)
    for _ in range(100):
        told.now()
    assert disk.measured == 1
    clock.advance(KEEP_SECONDS + 1)
    told.now()
    assert disk.measured == 2


def test_when_this_machine_s_clock_is_set_the_server_s_goes_on(clock):
    disk = Disk(clock, DAY)
    told = DiskClock(clock, disk.measure)
    before = told.now()
    for jump in (DAY, -3 * DAY):
        clock.jump_wall(jump)
        clock.advance(1)
        assert told.now() == disk.time() == pytest.approx(before := before + 1)
    assert disk.measured == 3


def test_when_this_machine_s_clock_is_set_its_own_disk_s_clock_is_set_as_well(clock):
    disk = Disk(clock, follows=True)
    told = DiskClock(clock, disk.measure)
    told.now()
    clock.jump_wall(DAY)
    assert told.now() == clock.wall() == disk.time()


def test_where_nothing_can_be_written_this_machine_s_clock_has_to_do(clock):
    disk = Disk(clock, DAY)
    disk.broken = True
    told = DiskClock(clock, disk.measure)
    for _ in range(3):
        assert told.now() == clock.wall()
        clock.advance(1)
    # It is not tried again for every question.
    assert disk.measured == 1


@pytest.mark.parametrize("follows", [True, False])
def test_a_reading_that_fails_later_changes_nothing(clock, follows):
    disk = Disk(clock, 0.0 if follows else DAY, follows=follows)
    told = DiskClock(clock, disk.measure)
    before = told.now()
    disk.broken = True
    clock.jump_wall(-DAY)
    clock.advance(KEEP_SECONDS * 2)
    assert told.now() == pytest.approx(before + KEEP_SECONDS * 2)
