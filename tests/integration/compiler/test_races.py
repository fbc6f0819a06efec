"""Two compilers at one shard, writers beside them, and answers that get lost."""

from __future__ import annotations

import hashlib

import pytest

from dfq.compiler import compiling, listing
from dfq.compiler.lock import acquire
from dfq.compiler.passes import Bounds
from dfq.compiler.paths import refiled_key
from dfq.errors import StoreUnsure
from dfq.store import Changed, Missing
from dfq.stores.faults import FaultPlan
from dfq.stores.memory import MemoryStore
from dfq.testing import FakeClock, SeededChance
from tests.indexes import (
    WALL,
    drop,
    is_settled,
    keys_of,
    make_index,
    model_of,
    open_index,
    outcomes,
    row,
    shards_of,
)

ONE = "5e"
FIRST, SECOND, THIRD = keys_of(ONE, 3)
INLINE = Bounds(parallel=1)


class Meddling:
    """A store in which somebody does something right before a call of a given name."""

    def __init__(self, store, name, meddle):
        self._store, self._name, self._meddle = store, name, meddle

    def __getattr__(self, name):
        found = getattr(self._store, name)
        if name != self._name:
            return found

        def call(*args, **options):
            meddle, self._meddle = self._meddle, lambda: None
            meddle()
            return found(*args, **options)

        return call


@pytest.fixture
def clock():
    return FakeClock(WALL)


@pytest.fixture
def store(clock):
    store = MemoryStore(clock=clock)
    make_index(store, clock=clock)
    return store


def own(number: int) -> str:
    return f"inbox/{ONE}/{number:026d}-{number:016d}.usv"


def settle(store, clock) -> None:
    clock.advance(400)
    open_index(store, clock=clock, seed=9).compile(bounds=INLINE)
    assert is_settled(store)


@pytest.mark.parametrize("call", ["create_from", "replace_from"])
def test_who_loses_the_race_for_a_shard_gives_up_and_nothing_is_lost(store, clock, call):
    bodies = []
    if call == "replace_from":
        bodies.append(drop(store, own(1), row(FIRST)))
        open_index(store, clock=clock).compile(bounds=INLINE)
    bodies.append(drop(store, own(2), row(SECOND)))

    def other_compiler() -> None:
        # It does not care about the lock, as if it had been thought dead.
        store.delete(f"shards/{ONE}.lock")
        bodies.append(drop(store, own(3), row(THIRD)))
        other = open_index(store, clock=clock, seed=3)
        assert outcomes(other.compile(bounds=INLINE)) == {ONE: "compiled"}
        # What the other left is not what this one has seen.
        bodies.append(drop(store, own(4), row(FIRST, "Rome", "2023-11-12T00:00:00Z")))

    meddled = Meddling(store, call, other_compiler)
    report = open_index(meddled, clock=clock, seed=4).compile(bounds=INLINE)
    assert report.shards[0].outcome == "lost"
    settle(store, clock)
    assert shards_of(store) == model_of(*bodies)


@pytest.mark.parametrize("name", ["by-hand.usv", "0-foreign.usv"])
def test_an_inbox_file_that_is_rewritten_while_it_is_merged_stays(store, clock, name):
    key = f"inbox/{ONE}/{name}"
    bodies = [drop(store, key, row(FIRST, "Bern"))]

    def rewrite() -> None:
        bodies.append(drop(store, key, row(FIRST, "Rome", "2023-11-12T00:00:00Z"), row(SECOND)))

    meddled = Meddling(store, "create_from", rewrite)
    report = open_index(meddled, clock=clock).compile(bounds=INLINE)
    assert report.shards[0].files == 0
    assert report.waiting == 1
    assert store.read(key).body == bodies[-1]
    settle(store, clock)
    assert shards_of(store) == model_of(*bodies)


def test_a_file_put_while_the_shard_is_merged_stays(store, clock):
    bodies = [drop(store, own(1), row(FIRST))]
    meddled = Meddling(
        store, "create_from", lambda: bodies.append(drop(store, own(2), row(SECOND)))
    )
    open_index(meddled, clock=clock).compile(bounds=INLINE)
    assert [entry.key for entry in store.list("inbox/").entries] == [own(2)]
    settle(store, clock)
    assert shards_of(store) == model_of(*bodies)


def test_what_is_older_than_a_deletion_does_not_bring_the_record_back(store, clock):
    index = open_index(store, clock=clock)
    bodies = [drop(store, own(1), row(FIRST, "Bern", "2023-11-05T00:00:00Z"))]
    index.compile(bounds=INLINE)
    bodies.append(
        drop(store, own(2), row(FIRST, "", "2023-11-10T00:00:00Z", "2023-11-10T00:00:00Z"))
    )
    index.compile(bounds=INLINE)
    bodies.append(drop(store, own(3), row(FIRST, "Rome", "2023-11-09T00:00:00Z")))
    index.compile(bounds=INLINE)
    assert index.get(FIRST) is None
    assert shards_of(store) == model_of(*bodies)
    drop(store, own(4), row(FIRST, "Oslo", "2023-11-12T00:00:00Z"))
    assert index.get(FIRST)["city"] == "Oslo"


def test_an_old_deletion_is_forgotten_only_when_nothing_older_can_wait(store, clock):
    index = open_index(store, clock=clock)
    drop(store, own(1), row(FIRST, "", "2023-11-01T00:00:00Z", "2023-11-01T00:00:00Z"))
    index.compile(bounds=INLINE)
    clock.advance(40 * 86_400)
    # Two wait, and one pass takes only the first of them.
    drop(store, own(2), row(SECOND, "Bern", "2023-11-02T00:00:00Z"))
    drop(store, own(3), row(FIRST, "Rome", "2023-10-31T00:00:00Z"))
    bounds = Bounds(parallel=1, max_files=1)
    report = index.compile(bounds=bounds)
    assert index.get(FIRST) is None
    assert sum(one.dropped for one in report.shards) == 1
    assert shards_of(store) == model_of(
        b"\x1f".join(map(str.encode, row(SECOND, at="2023-11-02T00:00:00Z")))
    )


OLD, OLDER = "2023-10-01T00:00:00Z", "2023-09-01T00:00:00Z"
TOMBSTONE = row(FIRST, "", OLD, OLD)


@pytest.mark.parametrize(
    ("place", "shards"),
    [
        ("inbox/", [ONE]),
        ("", [ONE]),
        ("inbox/00/", None),
        ("inbox/ff/", None),
        ("inbox/00/", [ONE]),
    ],
)
def test_an_old_deletion_is_kept_while_something_waits_in_another_inbox_or_in_none(
    store, clock, place, shards
):
    for seed in range(4):
        drop(store, own(seed), TOMBSTONE)
        drop(store, f"{place}late.usv", row(FIRST, "Rome", OLDER))
        index = open_index(store, clock=clock, seed=seed)
        index.compile(shards=shards, bounds=INLINE)
        index.compile(bounds=INLINE)
        assert index.get(FIRST) is None
        assert is_settled(store)


@pytest.mark.parametrize("key", ["z.usv", "inbox/ff/z.usv"])
def test_an_old_deletion_is_kept_if_a_record_is_moved_here_while_the_inbox_is_listed(
    store, clock, key, monkeypatch
):
    last = f"inbox/{ONE}/{'z' * 26}-{'0' * 16}.usv"
    drop(store, last, TOMBSTONE)
    body = drop(store, key, row(FIRST, "Rome", OLDER))

    class Moving:
        """Once the inbox was listed and its source not yet, another compiler moves a record."""

        def __getattr__(self, name):
            return getattr(store, name)

        def list(self, prefix, after="", limit=1):
            page = store.list(prefix, after, limit)
            if page.entries[-1:] and page.entries[-1].key == last and store.read(key):
                store.put(refiled_key(ONE, hashlib.sha256(body).hexdigest()), body)
                store.delete(key)
            return page

    monkeypatch.setattr(listing, "MAX_PAGE", 1)
    open_index(Moving(), clock=clock).compile(bounds=INLINE)
    settle(store, clock)
    assert open_index(store, clock=clock).get(FIRST) is None


def test_an_old_deletion_is_kept_if_another_compiler_sorts_a_flat_file_first(store, clock):
    drop(store, own(1), TOMBSTONE)
    body = drop(store, "flat.usv", row(FIRST, "Rome", OLDER))

    def move():
        store.put(refiled_key(ONE, hashlib.sha256(body).hexdigest()), body)
        store.delete("flat.usv")

    # The first object that is read after the columns is the flat file.
    meddling = Meddling(store, "create", lambda: None)
    index = open_index(meddling, clock=clock)
    meddling._name, meddling._meddle = "read", lambda: setattr(meddling, "_meddle", move)
    index.compile(bounds=INLINE)
    settle(store, clock)
    assert open_index(store, clock=clock).get(FIRST) is None


def test_a_shard_whose_lock_is_held_is_left_alone(store, clock):
    body = drop(store, own(1), row(FIRST))
    other = open_index(store, clock=clock, seed=3)
    lock = acquire(other._site, ONE)
    report = open_index(store, clock=clock).compile(bounds=INLINE)
    assert outcomes(report) == {ONE: "locked"}
    assert report.waiting == 1
    lock.release()
    open_index(store, clock=clock).compile(bounds=INLINE)
    assert shards_of(store) == model_of(body)


class LostAnswer:
    """The answer to the first call of a name is lost, whether it was carried out or not."""

    def __init__(self, store, names, *, done):
        self._store, self._names, self._done = store, names, done
        self._lost = False

    def __getattr__(self, name):
        found = getattr(self._store, name)
        if name not in self._names:
            return found

        def call(*args, **options):
            if self._lost:
                return found(*args, **options)
            self._lost = True
            if self._done:
                found(*args, **options)
            raise StoreUnsure("no answer")

        return call


@pytest.mark.parametrize("done", [True, False])
@pytest.mark.parametrize("call", ["create_from", "replace_from"])
def test_a_lost_answer_to_the_write_of_a_shard_is_looked_into(store, clock, call, done):
    bodies = []
    if call == "replace_from":
        bodies.append(drop(store, own(1), row(FIRST)))
        open_index(store, clock=clock).compile(bounds=INLINE)
    bodies.append(drop(store, own(2), row(SECOND)))
    lossy = LostAnswer(store, {call}, done=done)
    report = open_index(lossy, clock=clock).compile(bounds=INLINE)
    assert outcomes(report) == {ONE: "compiled" if done else "unsure"}
    settle(store, clock)
    assert shards_of(store) == model_of(*bodies)


@pytest.mark.parametrize("done", [True, False])
@pytest.mark.parametrize("call", ["delete_many", "delete", "create", "replace"])
def test_other_lost_answers_do_no_harm(store, clock, call, done):
    bodies = [
        drop(store, own(1), row(FIRST)),
        drop(store, f"inbox/{ONE}/by-hand.usv", row(SECOND), b"bad\n"),
    ]
    lossy = LostAnswer(store, {call}, done=done)
    open_index(lossy, clock=clock).compile(bounds=INLINE)
    settle(store, clock)
    assert shards_of(store) == model_of(*bodies)


@pytest.mark.parametrize("seed", range(25))
def test_a_store_with_all_its_bad_days_loses_nothing(seed):
    clock, chance = FakeClock(WALL), SeededChance(seed)
    store = MemoryStore(clock=clock)
    make_index(store, clock=clock)
    store.faults = plan = FaultPlan(
        chance,
        late=0.03,
        lost=0.03,
        lost_answer=0.05,
        duplicated=0.05,
        conflict=0.03,
        slow_down=0.03,
    )
    put: dict[str, tuple[str, str]] = {}
    cities = ("Bern", "Rome", "Oslo", "Lima")
    keys = [*keys_of(ONE, 3), *keys_of("a0", 2)]
    bodies = []
    compilers = [unharmed(lambda n=n: open_index(store, clock=clock, seed=n)) for n in (1, 2)]
    for number in range(30):
        key, city = keys[chance.bits(16) % len(keys)], cities[chance.bits(2)]
        at = f"2023-11-12T00:00:{number:02d}Z"
        record = {"domain": key, "city": city, "updated_at": at}
        compiler = compilers[number % 2]
        unharmed(lambda r=record: compilers[0].put(r))
        bodies.append("\x1f".join(row(key, city, at)).encode() + b"\n")
        put[key] = (at, city)
        if number % 3 == 0:
            clock.advance(200)
            unharmed(lambda c=compiler: c.compile(bounds=INLINE), tries=1)
    store.faults = None
    store.deliver_all()
    assert plan is not None
    for _ in range(2):
        clock.advance(400)
        open_index(store, clock=clock, seed=7).compile(bounds=INLINE)
    assert shards_of(store) == model_of(*bodies)
    assert is_settled(store)


def unharmed(do, tries: int = 50):
    """Try until it gets through, as a caller would."""
    from dfq.errors import QueueBusy, QueueUnavailable

    for _ in range(tries):
        try:
            return do()
        except (QueueUnavailable, QueueBusy):
            continue
    assert tries == 1, "it never got through"
    return None


def test_a_store_without_conditional_delete_works_too(clock):
    store = MemoryStore(clock=clock)
    store.conditional_delete = False
    real = store.delete

    def delete(key, etag=None):
        assert etag is None
        return real(key)

    store.delete = delete
    make_index(store, clock=clock)
    bodies = [
        drop(store, own(1), row(FIRST)),
        drop(store, f"inbox/{ONE}/by-hand.usv", row(SECOND)),
    ]
    open_index(store, clock=clock).compile(bounds=INLINE)
    assert is_settled(store)
    assert shards_of(store) == model_of(*bodies)


def test_a_lock_that_was_taken_over_ends_the_work_under_it(store, clock, monkeypatch):
    drop(store, own(1), row(FIRST))
    real = compiling.merge

    def merge(*args, **options):
        clock.advance(400)
        taken = acquire(open_index(store, clock=clock, seed=3)._site, ONE)
        assert taken is not None
        for lock in list(keepers[-1]._held):
            lock.renew()
        return real(*args, **options)

    keepers = []
    from dfq.compiler import passes

    class Spied(passes.Keeper):
        def __init__(self, *args):
            super().__init__(*args)
            keepers.append(self)

    monkeypatch.setattr(passes, "Keeper", Spied)
    monkeypatch.setattr(compiling, "merge", merge)
    report = open_index(store, clock=clock).compile(bounds=INLINE)
    assert outcomes(report) == {ONE: "lost"}
    assert store.read(f"shards/{ONE}.usv") is None
    assert store.read(f"shards/{ONE}.lock") is not None


@pytest.mark.parametrize("error", [Changed, Missing])
def test_a_shard_that_changed_or_is_gone_is_lost(store, clock, error, monkeypatch):
    drop(store, own(1), row(FIRST))
    index = open_index(store, clock=clock)
    index.compile(bounds=INLINE)
    drop(store, own(2), row(SECOND))

    def refuse(key, path, etag):
        raise error(key)

    monkeypatch.setattr(store, "replace_from", refuse)
    assert outcomes(index.compile(bounds=INLINE)) == {ONE: "lost"}
    assert [entry.key for entry in store.list("inbox/").entries] == [own(2)]


def test_a_pass_does_not_fail_for_what_is_derived(store, clock, monkeypatch):
    body = drop(store, own(1), row(FIRST))
    index = open_index(store, clock=clock)
    real = store.read

    def read(key):
        if key == "manifest.json":
            raise StoreUnsure("no answer")
        return real(key)

    monkeypatch.setattr(store, "read", read)
    assert outcomes(index.compile(bounds=INLINE)) == {ONE: "compiled"}
    monkeypatch.undo()
    assert shards_of(store) == model_of(body)
    assert index.stats().stale == [ONE]
    assert [finding.subject for finding in index.verify()] == ["manifest.json"]
    index.rebuild()
    assert index.stats().stale == []
