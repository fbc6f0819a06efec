"""Columns that are added while somebody compiles or reads: nothing is judged by the old ones."""

from __future__ import annotations

import pytest

from dfq.compiler import passes
from dfq.compiler.passes import Bounds
from dfq.stores.memory import MemoryStore
from dfq.testing import FakeClock
from tests.indexes import WALL, drop, is_settled, keys_of, make_index, open_index, quarantined

ONE = "5e"
FIRST, SECOND = keys_of(ONE, 2)
INLINE = Bounds(parallel=1)
GROWN = [FIRST, "Bern", "2023-11-01T00:00:00Z", "", "031"]


@pytest.fixture
def clock():
    return FakeClock(WALL)


@pytest.fixture
def store(clock):
    store = MemoryStore(clock=clock)
    make_index(store, clock=clock)
    return store


@pytest.mark.parametrize("place", ["", "inbox/", f"inbox/{ONE}/", "inbox/00/"])
def test_a_compile_during_which_a_column_is_added_knows_it_before_it_ends(
    store, clock, monkeypatch, place
):
    index, real = open_index(store, clock=clock), passes.list_index

    def growing(*args, **more):
        monkeypatch.setattr(passes, "list_index", real)
        open_index(store, clock=clock, seed=3).grow("phone")
        drop(store, f"{place}new.usv", GROWN)
        return real(*args, **more)

    monkeypatch.setattr(passes, "list_index", growing)
    report = index.compile(bounds=INLINE)
    assert (report.quarantined, quarantined(store)) == ([], [])
    assert index.get(FIRST)["phone"] == "031"
    assert is_settled(store)
