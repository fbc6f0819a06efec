"""The handle: making, putting, getting, and what it refuses."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime

import pytest

import dfq
from dfq import Index
from dfq.compiler.passes import Bounds, draw
from dfq.errors import InvalidIndex, InvalidRecord, NoIndex
from dfq.stores.memory import MemoryStore
from dfq.testing import FakeClock, SeededChance
from tests.indexes import WALL, keys_of, make_index, open_index, outcomes
from tests.integration.compiler.test_races import Meddling

_NUMBERS = itertools.count()
ONE = "5e"


@pytest.fixture
def clock():
    return FakeClock(WALL)


@pytest.fixture
def store(clock):
    return MemoryStore(clock=clock)


@pytest.fixture
def index(store, clock):
    return make_index(store, clock=clock)


def test_handles_by_url_see_the_same_index(tmp_path):
    for url in (str(tmp_path / "a"), f"file://{tmp_path}/b", f"memory://index-{next(_NUMBERS)}"):
        with pytest.raises(NoIndex, match="dfq index create"):
            Index(url)
        with Index.create(url, ["domain"]) as made, Index(url) as opened:
            made.put({"domain": "a"})
            assert opened.get("a")["domain"] == "a"
            assert made.url == opened.url


def test_a_record_is_seen_as_soon_as_it_is_put_and_after_it_was_compiled(index):
    index.put({"domain": "a", "city": "Bern"})
    assert index.get("a")["city"] == "Bern"
    index.compile()
    assert index.get("a")["city"] == "Bern"
    index.put({"domain": "a", "city": "Rome"})
    assert index.get("a")["city"] == "Rome"
    assert index.get("b") is None
    assert index.get("") is None


def test_of_two_puts_in_a_row_the_later_one_counts_though_the_clock_stands_still(index):
    for number in range(20):
        index.put({"domain": "a", "city": str(number)})
        assert index.get("a")["city"] == str(number)


def test_the_newest_counts_in_whatever_order_they_come(index):
    newer = {"domain": "a", "city": "newer", "updated_at": "2023-11-02T00:00:00+01:00"}
    older = {"domain": "a", "city": "older", "updated_at": "2023-11-01T22:59:59Z"}
    index.put(newer)
    index.compile()
    index.put(older)
    assert index.get("a")["city"] == "newer"
    index.compile()
    assert index.get("a")["city"] == "newer"


def test_a_deleted_record_is_gone_and_can_come_back(index, clock):
    index.put({"domain": "a", "city": "Bern"})
    clock.advance(1)
    index.delete("a")
    assert index.get("a") is None
    assert index.get("a", deleted=True)["deleted_at"]
    assert list(index.scan()) == []
    assert len(list(index.scan(deleted=True))) == 1
    clock.advance(1)
    index.put({"domain": "a", "city": "Rome"})
    index.compile()
    assert index.get("a")["city"] == "Rome"


@pytest.mark.parametrize("compiled", [True, False])
def test_a_record_that_is_compiled_while_it_is_read_is_seen(index, store, clock, compiled):
    (key,) = keys_of(ONE, 1)
    if compiled:
        index.put({"domain": key, "city": "before"})
        index.compile()
    index.put({"domain": key, "city": "now"})

    def compile_it():
        open_index(store, clock=clock, seed=5).compile(bounds=Bounds(parallel=1))

    for call in ("list", "read", "fetch"):
        reader = open_index(store, clock=clock, seed=4)
        reader._site.store = Meddling(store, call, compile_it)
        assert reader.get(key)["city"] == "now"


def test_records_of_a_shard_share_a_file(index, store):
    assert index.put_many({"domain": key} for key in (*keys_of(ONE, 5), *keys_of("a0", 3))) == 8
    assert len(store.list("inbox/").entries) == 2
    assert index.put_many([]) == 0


def test_nothing_is_put_if_one_of_many_does_not_fit(index, store):
    with pytest.raises(InvalidRecord):
        index.put_many([{"domain": "a"}, {"domain": ""}])
    assert store.list("inbox/").entries == ()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("text", "text"),
        (None, ""),
        (7, "7"),
        (1.5, "1.5"),
        (True, "true"),
        ({"b": 1, "a": [None]}, '{"a":[null],"b":1}'),
        (datetime(2023, 11, 1, tzinfo=UTC), "2023-11-01T00:00:00+00:00"),
        ("\x1f\x1e\x1b\r\n\x00 ünï", "\x1f\x1e\x1b\r\n\x00 ünï"),
    ],
)
def test_a_value_is_kept_as_text(index, value, text):
    index.put({"domain": "a", "city": value})
    index.compile()
    assert index.get("a")["city"] == text


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({"domain": "a", "town": "x"}, "no column 'town'"),
        ({"city": "x"}, "key 'domain' is empty"),
        ({"domain": "a", "city": float("nan")}, "no number"),
        ({"domain": "a", "city": object()}, "can't be stored"),
        ({"domain": "a", "city": "\ud800"}, "UTF-8"),
        ({"domain": "\udcff"}, "UTF-8"),
        ({"domain": "a", "updated_at": "yesterday"}, "datetime"),
        ({"domain": "a", "city": "x" * (9 << 20)}, "at most"),
        (["a"], "not list"),
    ],
)
def test_a_record_that_does_not_fit_is_refused(index, record, said):
    with pytest.raises(InvalidRecord, match=said):
        index.put(record)


def test_columns_only_grow_at_the_end_and_by_one_at_a_time(index, store, clock):
    other = open_index(store, clock=clock)
    index.grow("phone")
    other.grow("fax")
    assert other.descriptor.columns[-2:] == ("phone", "fax")
    assert index.descriptor.columns[-1] == "phone"
    index.put({"domain": "a", "fax": "7"})
    with pytest.raises(InvalidIndex, match="twice"):
        index.grow("city")


def test_a_pass_takes_no_more_than_its_bounds(index, store):
    for _ in range(7):
        index.put({"domain": keys_of(ONE, 1)[0]})
    report = index.compile(bounds=Bounds(parallel=1, max_files=3))
    assert (report.passes, [one.files for one in report.shards]) == (3, [3, 3, 1])
    for _ in range(3):
        index.put({"domain": keys_of(ONE, 1)[0], "city": "x" * 100})
    report = index.compile(bounds=Bounds(parallel=1, max_bytes=150))
    assert [one.files for one in report.shards] == [1, 1, 1]


def test_a_listing_that_is_bounded_goes_on_where_it_ended(index):
    index.put_many({"domain": str(number)} for number in range(3_000))
    for _ in range(10):
        index.put_many({"domain": str(number)} for number in range(3_000))
    report = index.compile(bounds=Bounds(max_listed=1_000))
    assert report.waiting == 0
    assert report.passes > 2
    assert index.plan().waiting == {}


def test_only_the_shards_asked_for_are_compiled(index):
    index.put_many({"domain": key} for key in (*keys_of(ONE, 1), *keys_of("a0", 1)))
    assert outcomes(index.compile(shards=[ONE])) == {ONE: "compiled"}
    assert list(index.plan().waiting) == ["a0"]


def test_progress_reaches_its_total(index):
    seen = []
    index.put_many({"domain": str(number)} for number in range(300))
    index.compile(on_progress=lambda done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1] > 100


def test_a_shard_with_more_waiting_is_drawn_more_often():
    chance = SeededChance(3)
    drawn = [draw([1, 8, 1], chance) for _ in range(1_000)]
    assert set(drawn) == {0, 1, 2}
    assert drawn.count(1) > 700


def test_the_manifest_tells_what_each_shard_holds(index):
    keys = keys_of(ONE, 3)
    index.put_many({"domain": key, "updated_at": "2023-11-10T00:00:00Z"} for key in keys)
    index.delete(keys[0])
    index.compile()
    stats = index.stats()
    assert (stats.shards, stats.records, stats.tombstones) == (1, 3, 1)
    assert stats.newest_updated_at == "2023-11-14T22:13:20.000000000Z"
    assert (stats.stale, stats.locked, stats.waiting_files) == ([], [], 0)


def test_the_index_is_one_of_the_names_of_the_package():
    assert dfq.Index is Index
    assert "Index" in dfq.__all__
