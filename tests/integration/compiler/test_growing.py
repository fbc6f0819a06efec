"""Columns that are added while somebody compiles or reads: nothing is judged by the old ones."""

from __future__ import annotations

import pytest

from dfq import Index
from dfq.compiler import passes, reading
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


def scan_while_it_grows(store, clock, monkeypatch, meddle):
    """Scan, and do this once the scan has listed what there is."""
    index, real = open_index(store, clock=clock), reading.list_index

    def listing(*args, **more):
        found = real(*args, **more)
        meddle(open_index(store, clock=clock, seed=3))
        return found

    monkeypatch.setattr(reading, "list_index", listing)
    return {one["domain"]: one for one in index.scan()}


def test_a_scan_during_which_a_column_is_added_reads_what_is_compiled_with_it(
    store, clock, monkeypatch
):
    open_index(store, clock=clock).put_many([{"domain": FIRST}, {"domain": SECOND}])

    def meddle(other):
        clock.advance(1)
        other.grow("phone")
        other.put({"domain": SECOND, "city": "Rome", "phone": "06"})
        other.compile(bounds=INLINE)

    found = scan_while_it_grows(store, clock, monkeypatch, meddle)
    assert {key: one["city"] for key, one in found.items()} == {FIRST: "", SECOND: "Rome"}
    # Every record of a scan has the same columns.
    assert {len(one) for one in found.values()} == {4}


def test_a_scan_leaves_no_record_out_that_came_with_a_new_column(store, clock, monkeypatch):
    index = open_index(store, clock=clock)
    index.put({"domain": FIRST})
    other = open_index(store, clock=clock, seed=3)
    other.grow("phone")
    drop(store, f"inbox/{ONE}/late.usv", [SECOND, *GROWN[1:]])
    # The scan begins with the columns of before.
    known, real = index.descriptor, index._site.refresh
    refreshed = iter([lambda: known])
    index._site.refresh = lambda: next(refreshed, real)()
    assert sorted(one["domain"] for one in index.scan()) == sorted([FIRST, SECOND])


def test_a_scan_of_many_lots_keeps_no_more_than_two_copies_of_a_shard(
    store, clock, monkeypatch, tmp_path
):
    index = Index("test", store=store, clock=clock, scratch=str(tmp_path))
    index.put_many({"domain": key} for key in keys_of(ONE, 20))
    index.compile(bounds=INLINE)
    for number, key in enumerate(keys_of(ONE, 8)):
        drop(store, f"inbox/{ONE}/{number}.usv", [key, "new", "2029-01-01", ""])
    monkeypatch.setattr(reading, "bounded", lambda entries: entries[:1])
    real, most = reading.merge, []

    def counting(*args, **more):
        merged = real(*args, **more)
        most.append(sum(1 for path in tmp_path.glob("dfq-index-*/*") if path.stat().st_size > 500))
        return merged

    monkeypatch.setattr(reading, "merge", counting)
    assert sum(one["city"] == "new" for one in index.scan()) == 8
    assert (len(most), max(most)) == (8, 2)
