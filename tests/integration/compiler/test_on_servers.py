"""Indexes on real stores: what they cost, whose clock counts, and what others read there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from dfq import Index
from dfq.ambient import SYSTEM_CLOCK
from dfq.compiler.passes import Bounds
from dfq.compiler.records import seconds_of
from dfq.store import MAX_BODY_BYTES, Store
from tests.indexes import COLUMNS, drop, is_settled, keys_of, model_of, outcomes, row, shards_of
from tests.models.index_model import written
from tests.patience import patience

STORES = ("local", "ministack", "seaweedfs")
ONE, TWO = "5e", "a0"


class DayOff:
    """The machine's clock, a day off."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def wall(self) -> float:
        return SYSTEM_CLOCK.wall() + self._seconds

    def boot(self) -> float:
        return SYSTEM_CLOCK.boot()


@pytest.fixture(params=STORES)
def store(request, make_store: Callable[[str], Store]) -> Iterator[Store]:
    return make_store(request.param)


@pytest.fixture
def index(store) -> Index:
    return Index.create("test", COLUMNS, store=store)


def test_records_are_put_compiled_and_got(index, store):
    cities = {f"{number}.example": f"city {number}" for number in range(60)}
    index.put_many({"domain": key, "city": city} for key, city in cities.items())
    some = list(cities)[::17]
    assert {key: index.get(key)["city"] for key in some} == {key: cities[key] for key in some}
    report = index.compile()
    assert set(outcomes(report).values()) == {"compiled"}
    assert is_settled(store)
    assert {one["domain"]: one["city"] for one in index.scan()} == cities
    index.delete(some[0])
    assert index.get(some[0]) is None
    index.compile()
    assert index.get(some[0]) is None
    stats = index.stats()
    assert (stats.records, stats.tombstones, stats.waiting_files, stats.stale) == (60, 1, 0, [])
    assert index.verify() == []


def test_flat_files_misplaced_and_bad_records_find_their_places(index, store):
    (one,), (two,) = keys_of(ONE, 1), keys_of(TWO, 1)
    bodies = [
        drop(store, "seed.example.usv", row(one)),
        drop(store, f"inbox/{ONE}/misplaced.usv", row(two), b"bad\n"),
    ]
    index.compile()
    assert shards_of(store) == model_of(*bodies)
    assert is_settled(store)
    assert [f.subject for f in index.verify()] == ["quarantine/"]


def test_compilers_at_once_end_in_the_bytes_of_the_model(index, store):
    bodies = []
    for number in range(24):
        key = keys_of(ONE if number % 2 else TWO, 3)[number % 3]
        record = row(key, f"city {number}", f"2026-11-01T00:00:{number:02d}Z")
        bodies.append(drop(store, f"inbox/{ONE if number % 2 else TWO}/{number}.usv", record))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: Index("test", store=store).compile(), range(4)))
    index.compile()
    assert shards_of(store) == model_of(*bodies)


def counted(store: Store, do: Callable[[], object]) -> dict[str, int]:
    before = store.requests.snapshot()
    do()
    after = store.requests.snapshot()
    return {kind: after[kind] - before[kind] for kind in after}


@pytest.mark.parametrize("name", ["memory", "ministack"])
@pytest.mark.parametrize("shard_exists", [False, True])
def test_what_compiling_costs(make_store, name, shard_exists):
    store = make_store(name)
    index = Index.create("test", COLUMNS, store=store)
    keys = keys_of(ONE, 7)
    if shard_exists:
        index.put({"domain": keys[6]})
        index.compile()
    for key in keys[:5]:
        index.put({"domain": key})
    assert counted(store, lambda: index.compile(bounds=Bounds(parallel=1))) == {
        # Lock, shard, manifest.
        "put": 3,
        # Columns, shard, five files, manifest.
        "get": 8,
        # Of all shards together.
        "list": 1,
        # The files in one batch, the lock.
        "delete": 2,
    }


def test_a_listing_is_shared_by_all_shards_of_a_pass(make_store):
    store = make_store("memory")
    index = Index.create("test", COLUMNS, store=store)
    index.put_many({"domain": f"{number}.example"} for number in range(500))
    shards = len(index.plan().waiting)
    assert shards > 150
    assert counted(store, index.compile) == {
        "put": 2 * shards + 1,
        "get": 2 * shards + 2,
        "list": 1,
        "delete": 2 * shards,
    }


def test_more_than_a_thousand_files_of_a_shard_go_in_batches(make_store):
    store = make_store("memory")
    index = Index.create("test", COLUMNS, store=store)
    for number, key in enumerate(keys_of(ONE, 5) * 250):
        store.put(f"inbox/{ONE}/{number:026d}-{number:016d}.usv", written([row(key)]))
    assert counted(store, index.compile) == {"put": 3, "get": 1253, "list": 2, "delete": 3}
    assert is_settled(store)


def test_what_has_nothing_new_is_not_written(make_store):
    store = make_store("memory")
    index = Index.create("test", COLUMNS, store=store)
    body = drop(store, f"inbox/{ONE}/{'0' * 26}-{'1' * 16}.usv", row(keys_of(ONE, 1)[0]))
    index.compile()
    store.put(f"inbox/{ONE}/{'0' * 26}-{'2' * 16}.usv", body)
    counts = counted(store, lambda: index.compile(bounds=Bounds(parallel=1)))
    # The lock alone is written: neither the shard nor the manifest has changed.
    assert (counts["put"], counts["delete"]) == (1, 2)


def test_an_idle_pass_costs_a_listing_and_the_columns(make_store):
    store = make_store("memory")
    index = Index.create("test", COLUMNS, store=store)
    assert counted(store, index.compile) == {"put": 0, "get": 1, "list": 1, "delete": 0}


@pytest.fixture
def url_of(running_server, aws_settings, tmp_path):
    """The URL of a place on a server, or of a folder."""

    def url(name, place):
        if name == "local":
            return str(tmp_path / place)
        return running_server(name).url(f"{place}/{name}", timeout=100)

    return url


def wait_until_past(at, index):
    """Until the store's clock, as this node knows it, is later than that."""
    pause = threading.Event()
    until = SYSTEM_CLOCK.boot() + patience(30)
    while index.store.now() <= at:
        assert SYSTEM_CLOCK.boot() < until
        pause.wait(0.01)


@pytest.mark.parametrize("name", ["local", "ministack", "seaweedfs"])
def test_nodes_whose_clocks_are_a_day_apart_come_to_the_same_bytes(url_of, name):
    ends = []
    for number, (ahead, behind) in enumerate([(86_400.0, -86_400.0), (-86_400.0, 86_400.0)]):
        url = url_of(name, f"clocks-{number}")
        one, two = DayOff(ahead), DayOff(behind)
        with (
            Index.create(url, COLUMNS, clock=one) as first,
            Index(url, clock=two) as second,
        ):
            keys = keys_of(ONE, 3)
            for count, key in enumerate(keys * 2):
                index = (first, second)[count % 2]
                index.put(
                    {
                        "domain": key,
                        "city": str(count),
                        "updated_at": f"2026-11-01T00:00:0{count}Z",
                    }
                )
                if count % 2:
                    index.compile()
            # A mark of deletion that is too old by one clock, and by no other.
            first.delete(keys[0])
            second.compile()
            assert first.get(keys[0]) is None
            # Time without a date of its own is the store's, whoever puts it.
            first.put({"domain": keys[1], "city": "first"})
            wait_until_past(seconds_of(first.get(keys[1])["updated_at"]), second)
            second.put({"domain": keys[1], "city": "second"})
            assert abs(SYSTEM_CLOCK.wall() - first.store.now()) < 60
            first.compile()
            # Whoever put last wins, not whoever is ahead.
            assert second.get(keys[1])["city"] == "second"
            for last, index in (("third", first), ("fourth", second)):
                wait_until_past(seconds_of(first.get(keys[1])["updated_at"]), index)
                index.put({"domain": keys[1], "city": last})
                assert first.get(keys[1])["city"] == last
            assert outcomes(second.compile()) == {ONE: "compiled"}
            assert second.get(keys[1])["city"] == "fourth"
            body = second.store.read(f"shards/{ONE}.usv").body
            ends.append([line.split(b"\x1f")[0] for line in body.splitlines()])
            third = next(line for line in body.splitlines() if line.startswith(keys[2].encode()))
            ends[-1].append(third)
    assert ends[0] == ends[1]


@pytest.mark.parametrize("name", ["local", "ministack", "seaweedfs"])
def test_a_lock_is_judged_by_the_store_s_clock(url_of, name):
    from dfq.compiler.lock import acquire

    url = url_of(name, "locks")
    with (
        Index.create(url, COLUMNS, clock=DayOff(-86_400.0)) as first,
        Index(url, clock=DayOff(86_400.0)) as second,
    ):
        lock = acquire(first._site, ONE)
        assert lock is not None
        assert acquire(second._site, ONE) is None
        lock.release()
        assert acquire(second._site, ONE) is not None


@pytest.mark.parametrize("name", ["local", "ministack", "seaweedfs"])
def test_a_shard_larger_than_any_body_is_compiled_and_read(make_store, name):
    store = make_store(name)
    index = Index.create("test", COLUMNS, store=store)
    keys = keys_of(ONE, 10)
    index.put_many({"domain": key, "city": key[0] * 2_000_000} for key in keys)
    index.compile()
    assert store.list(f"shards/{ONE}.usv").entries[0].size > MAX_BODY_BYTES
    index.put({"domain": keys[3], "city": "small"})
    assert index.get(keys[3])["city"] == "small"
    assert outcomes(index.compile()) == {ONE: "compiled"}
    assert index.get(keys[3])["city"] == "small"
    assert index.get(keys[9])["city"] == keys[9][0] * 2_000_000
    assert index.verify() == []
