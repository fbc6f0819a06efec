"""Bad days in memory: each fault does what it says, and the same seed has the same ones."""

from __future__ import annotations

from contextlib import suppress

import pytest

from dfq.errors import DfqError, QueueUnavailable, StoreBusy, StoreUnsure
from dfq.store import Changed, Exists, Lost
from dfq.stores.faults import FAULTS, FaultPlan
from dfq.stores.memory import MemoryStore
from dfq.testing import FakeClock, SeededChance

QUIET = FaultPlan(SeededChance(0))


def always(fault: str, **more: object) -> FaultPlan:
    return FaultPlan(SeededChance(1), **{fault: 1.0}, **more)


def some_of_all(seed: int) -> FaultPlan:
    return FaultPlan(SeededChance(seed), **dict.fromkeys(FAULTS, 0.08), max_delay_requests=5)


def run(seed: int, requests: int = 300) -> list[str]:
    """What comes of many requests, and what is stored after each."""
    store = MemoryStore(clock=FakeClock(), faults=some_of_all(seed))
    chance = SeededChance(seed + 1)
    story = []
    for number in range(requests):
        key, body = f"k/{chance.bits(2)}", b"%d" % number
        etag = "e"
        with suppress(DfqError):
            there = store.read(key)
            etag = there.etag if there else etag
        verbs = [
            lambda key=key, body=body: store.create(key, body),
            lambda key=key, body=body, etag=etag: store.replace(key, body, etag),
            lambda key=key, etag=etag: store.delete(key, etag),
            lambda key=key, body=body: store.put(key, body),
            lambda key=key: store.delete_many([key]),
        ]
        try:
            said = str(verbs[chance.bits(8) % len(verbs)]())
        except DfqError as error:
            said = type(error).__name__
        held, store.faults = store.faults, None
        story.append(f"{said} {store.list('').entries}")
        store.faults = held
    return story


def test_the_same_seed_has_the_same_story():
    assert run(7) == run(7)


def test_another_seed_has_another_story():
    assert len({tuple(run(seed, 50)) for seed in range(10)}) == 10


def test_every_kind_of_news_comes_up():
    said = {line.split()[0] for seed in range(5) for line in run(seed)}
    assert {"StoreUnsure", "StoreBusy", "Exists", "Changed", "Missing"} <= said


def test_without_a_plan_nothing_goes_wrong():
    for faults in (None, QUIET):
        store = MemoryStore(faults=faults)
        for number in range(200):
            store.create(f"k/{number}", b"")
        assert len(store.list("").entries) == 200


def test_a_lost_request_is_never_carried_out():
    store = MemoryStore(faults=always("lost"))
    with pytest.raises(StoreUnsure, match="may or may not"):
        store.create("key", b"")
    assert store.deliver_all() == 0
    store.faults = None
    assert store.read("key") is None


def test_a_lost_answer_hides_what_was_done():
    store = MemoryStore(faults=always("lost_answer"))
    with pytest.raises(StoreUnsure):
        store.create("key", b"mine")
    store.faults = None
    assert store.read("key").body == b"mine"
    # The second try is told of a loss that was a win: hence the nonce.
    with pytest.raises(Exists):
        store.create("key", b"mine")


def test_a_late_request_is_carried_out_later_under_its_condition():
    store = MemoryStore(faults=always("late", max_delay_requests=1))
    etag = MemoryStore().create("key", b"one")
    store.faults = None
    store.create("key", b"one")
    store.faults = always("late", max_delay_requests=1)
    with pytest.raises(StoreUnsure):
        store.replace("key", b"two", etag)
    store.faults = None
    assert store.read("key").body == b"two"


def test_a_late_request_whose_condition_no_longer_holds_does_nothing():
    store = MemoryStore(faults=always("late"))
    with pytest.raises(StoreUnsure):
        store.create("key", b"late")
    store.faults = None
    with suppress(Lost):
        store.create("key", b"early")
    first = store.read("key").body
    store.deliver_all()
    assert store.read("key").body == first


def test_a_duplicate_comes_again_after_what_others_did():
    store = MemoryStore(faults=always("duplicated", max_delay_requests=1))
    store.put("key", b"old")
    store.faults = None
    store.deliver_all()
    etag = store.put("key", b"new")
    store.faults = always("duplicated", max_delay_requests=100)
    store.delete("key", etag)
    store.faults = None
    store.put("key", b"other")
    store.deliver_all()
    # The delete came twice, but named a version that was gone.
    assert store.read("key").body == b"other"


def test_a_duplicated_delete_without_a_condition_hits_a_newer_version():
    store = MemoryStore()
    store.put("key", b"old")
    store.faults = always("duplicated", max_delay_requests=100)
    store.delete("key")
    store.faults = None
    store.create("key", b"new")
    assert store.deliver_all() == 1
    assert store.read("key") is None


def test_a_conflict_concerns_conditional_writes_only():
    store = MemoryStore(faults=always("conflict"))
    with pytest.raises(StoreBusy):
        store.create("key", b"")
    store.put("key", b"body")
    assert store.read("key").body == b"body"
    with pytest.raises(StoreBusy):
        store.delete("key", "etag")
    assert store.list("").entries[0].size == 4


def test_a_busy_store_does_nothing():
    store = MemoryStore(faults=always("slow_down"))
    for use in (lambda: store.put("key", b""), lambda: store.read("key"), lambda: store.list("")):
        with pytest.raises(StoreBusy):
            use()
    store.faults = None
    assert store.list("").entries == ()


@pytest.mark.parametrize("fault", ["late", "lost", "lost_answer"])
def test_a_read_without_an_answer_leaves_nothing_unsure(fault):
    store = MemoryStore(faults=always(fault))
    with pytest.raises(QueueUnavailable) as caught:
        store.read("key")
    assert not isinstance(caught.value, StoreUnsure)


def test_times_are_whole_seconds_of_the_clock_handed_in():
    clock = FakeClock(wall=1000.9)
    store = MemoryStore(clock=clock)
    etag = store.create("key", b"one")
    clock.advance(5.2)
    assert store.read("key").modified == 1000.0
    store.replace("key", b"two", etag)
    assert (store.list("").entries[0].modified, store.now()) == (1006.0, 1006.0)


@pytest.mark.parametrize("shares", [{"late": -0.1}, {"late": 0.6, "lost": 0.6}])
def test_shares_that_can_t_be_are_refused(shares):
    with pytest.raises(ValueError, match="shares of faults"):
        FaultPlan(SeededChance(0), **shares)


def test_a_changed_version_is_told_under_a_plan_too():
    store = MemoryStore(faults=QUIET)
    etag = store.create("key", b"one")
    store.put("key", b"two")
    with pytest.raises(Changed):
        store.delete("key", etag)
