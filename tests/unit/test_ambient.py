from __future__ import annotations

import os

from hypothesis import given
from hypothesis import strategies as st

from dfq.ambient import SYSTEM_CHANCE, SYSTEM_CLOCK, SystemChance, new_id
from dfq.task import check_id
from dfq.testing import FakeClock, SeededChance


def test_the_boot_clock_never_goes_back():
    times = [SYSTEM_CLOCK.boot() for _ in range(1_000)]
    assert times == sorted(times)


def test_the_wall_clock_tells_this_century():
    assert 1_600_000_000 < SYSTEM_CLOCK.wall() < 5_000_000_000


def test_ids_are_valid_and_all_different():
    ids = {new_id(SYSTEM_CLOCK, SYSTEM_CHANCE) for _ in range(5_000)}
    assert len(ids) == 5_000
    assert all(len(check_id(made)) == 26 for made in ids)


@given(st.floats(0, 1e10), st.floats(0.002, 1e6), st.integers(0, 2**60))
def test_an_id_made_later_sorts_later(wall, later, seed):
    clock, chance = FakeClock(wall=wall), SeededChance(seed)
    first = new_id(clock, chance)
    clock.advance(later)
    assert first < new_id(clock, chance)


def test_ids_can_be_made_before_1970_and_after_10889():
    for wall in (-1.0, 1e12):
        assert len(check_id(new_id(FakeClock(wall=wall), SeededChance()))) == 26


def test_a_forked_child_draws_other_numbers_than_its_parent():
    chance = SystemChance()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, chance.bits(64).to_bytes(8, "big"))
        os._exit(0)
    os.waitpid(child, 0)
    drawn = int.from_bytes(os.read(reading, 8), "big")
    os.close(reading)
    os.close(writing)
    assert drawn != chance.bits(64)


def test_system_chance_stays_in_its_bounds():
    assert all(0 <= SYSTEM_CHANCE.uniform(0, 3) <= 3 for _ in range(1_000))
    assert all(0 <= SYSTEM_CHANCE.bits(5) < 32 for _ in range(1_000))
    assert {SYSTEM_CHANCE.bits(2) for _ in range(1_000)} == {0, 1, 2, 3}
