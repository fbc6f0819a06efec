"""Any interleaving of puts and compilers ends in the same bytes as the plain model."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from dfq.compiler.passes import Bounds
from dfq.stores.memory import MemoryStore
from dfq.testing import FakeClock
from tests.indexes import (
    WALL,
    is_settled,
    keys_of,
    make_index,
    model_of,
    open_index,
    shard_of,
    shards_of,
)
from tests.indexes.mortal import Died, MortalStore
from tests.models.index_model import IndexModel, written

KEYS = [*keys_of("5e", 2), *keys_of("a0", 2), "Mixed.Example.", "ünïcode"]
TIMES = [
    "2023-11-10T00:00:00Z",
    "2023-11-10T01:00:00+01:00",
    "2023-11-11T00:00:00",
    "2023-11-12 00:00:00.5Z",
]
TEXT = st.text(max_size=6)

rows = st.tuples(
    st.sampled_from(KEYS),
    TEXT,
    st.sampled_from(TIMES),
    st.sampled_from(["", "2023-11-12T00:00:00Z"]),
).map(list)
steps = st.one_of(
    st.tuples(st.just("put"), st.lists(rows, min_size=1, max_size=4), st.integers(0, 5)),
    st.tuples(st.just("compile"), st.integers(0, 3), st.integers(1, 40)),
)


@settings(max_examples=150)
@given(st.lists(steps, max_size=12), st.sampled_from(["exact", "lower", "domain"]))
def test_any_interleaving_of_puts_and_compilers_ends_in_the_bytes_of_the_model(script, rule):
    clock = FakeClock(WALL)
    store = MemoryStore(clock=clock)
    make_index(store, clock=clock, key_rule=rule)
    bodies = []
    for number, (kind, *how) in enumerate(script):
        if kind == "put":
            body = written(how[0])
            bodies.append(body)
            places = ["", "inbox/", "inbox/5e/", "inbox/a0/", "inbox/00/", "inbox/ff/"]
            store.put(f"{places[how[1]]}{number}.usv", body)
            continue
        seed, dies_at = how
        # Some compilers die on the way, and their locks outlive them for a while.
        mortal = MortalStore(store, dies_at if seed else 0, "after" if seed == 1 else "before")
        try:
            index = open_index(mortal if seed else store, clock=clock, seed=number)
            index.compile(bounds=Bounds(parallel=1, max_files=1 + seed))
        except Died:
            clock.advance(400 if seed == 2 else 0)
    clock.advance(400)
    open_index(store, clock=clock).compile(bounds=Bounds(parallel=1))
    assert shards_of(store) == model_of(*bodies, key_rule=rule)
    assert is_settled(store)


#: Their marks of deletion are old enough to be dropped.
AGED = ["2023-09-01T00:00:00Z", "2023-09-02T00:00:00Z", "2023-10-01T00:00:00Z"]
PLACES = ["", "inbox/", "inbox/5e/", "inbox/a0/", "inbox/00/", "inbox/ff/", "own"]


def rows_of(times):
    marks = st.sampled_from(["", "2023-09-01T00:00:00Z"])
    made = st.tuples(st.sampled_from(KEYS), TEXT, st.sampled_from(times), marks)
    return st.lists(made.map(list), min_size=1, max_size=3)


@settings(max_examples=300)
@given(
    st.lists(st.tuples(rows_of(AGED), st.sampled_from(PLACES)), min_size=1, max_size=6),
    st.lists(
        st.one_of(
            st.tuples(st.just("put"), rows_of(TIMES), st.sampled_from(PLACES)),
            st.tuples(st.just("compile"), st.integers(0, 3), st.integers(1, 40)),
            st.tuples(st.just("compile"), st.just(0), st.sampled_from(["5e", "a0", "00"])),
        ),
        max_size=6,
    ),
)
def test_an_old_mark_of_deletion_goes_only_when_nothing_older_waits_anywhere(first, script):
    # What is older than a mark of deletion is there before the first compile, wherever it is.
    clock = FakeClock(WALL)
    store = MemoryStore(clock=clock)
    make_index(store, clock=clock)
    bodies = []

    def put(rows, place):
        for one in rows if place == "own" else [rows]:
            body = written([one] if place == "own" else one)
            bodies.append(body)
            name = f"{len(bodies)}.usv"
            if place == "own":
                name = f"inbox/{shard_of(one[0])}/{len(bodies):026d}-{0:016d}.usv"
            store.put(name if place == "own" else place + name, body)

    for rows, place in first:
        put(rows, place)
    for number, (kind, *how) in enumerate(script):
        if kind == "put":
            put(*how)
            continue
        seed, what = how
        shards = [what] if isinstance(what, str) else None
        mortal = MortalStore(store, 0 if shards else what, "after" if seed == 1 else "before")
        try:
            index = open_index(mortal if seed else store, clock=clock, seed=number)
            index.compile(shards=shards, bounds=Bounds(parallel=1, max_files=1 + seed))
        except Died:
            clock.advance(400 if seed == 2 else 0)
    for _ in range(2):
        clock.advance(400)
        open_index(store, clock=clock).compile(bounds=Bounds(parallel=1))
    assert is_settled(store)
    there, wanted = IndexModel(), IndexModel()
    for body in shards_of(store).values():
        there.put(body)
    for body in bodies:
        wanted.put(body)
    forgotten = wanted.records.keys() - there.records.keys()
    assert {key: wanted.records[key] for key in there.records} == there.records
    for key in forgotten:
        assert wanted.records[key][3] and wanted.records[key][2] < b"2023-10-15"


@settings(max_examples=60)
@given(st.lists(st.lists(rows, min_size=1, max_size=3), min_size=1, max_size=5), st.randoms())
def test_the_order_of_files_makes_no_difference(files, random):
    ends = []
    for _ in range(2):
        random.shuffle(files)
        clock = FakeClock(WALL)
        store = MemoryStore(clock=clock)
        index = make_index(store, clock=clock)
        for number, one in enumerate(files):
            store.put(f"inbox/{number}.usv", written(one))
            if random.random() < 0.5:
                index.compile(bounds=Bounds(parallel=1))
        index.compile(bounds=Bounds(parallel=1))
        index.compile(bounds=Bounds(parallel=1))
        ends.append(shards_of(store))
    assert ends[0] == ends[1]


@settings(max_examples=100)
@given(st.dictionaries(st.sampled_from(KEYS), TEXT, min_size=1))
def test_what_is_put_is_got_back_before_and_after_a_compile(cities):
    clock = FakeClock(WALL)
    store = MemoryStore(clock=clock)
    index = make_index(store, clock=clock)
    index.put_many({"domain": key, "city": city} for key, city in cities.items())
    for _ in range(2):
        assert {key: index.get(key)["city"] for key in cities} == cities
        assert {one["domain"]: one["city"] for one in index.scan()} == cities
        index.compile(bounds=Bounds(parallel=1))
