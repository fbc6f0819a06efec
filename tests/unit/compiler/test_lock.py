"""The advisory lock: one holder, ended by the store's clock, taken over by one."""

from __future__ import annotations

import orjson
import pytest

from dfq.compiler.lock import Keeper, acquire, sweep
from dfq.errors import QueueUnavailable
from dfq.stores.memory import MemoryStore
from dfq.testing import FakeClock
from tests.indexes import WALL, make_index, open_index

KEY = "shards/5e.lock"


class Paired:
    """A store whose second reader gets ahead of the first one's next write."""

    def __init__(self, store, name, first):
        self._store, self._name, self._first = store, name, first

    def __getattr__(self, name):
        found = getattr(self._store, name)
        if name != self._name:
            return found

        def call(*args):
            first, self._first = self._first, lambda: None
            first()
            return found(*args)

        return call


@pytest.fixture
def clock():
    return FakeClock(WALL)


@pytest.fixture
def store(clock):
    store = MemoryStore(clock=clock)
    make_index(store, clock=clock)
    return store


def site(store, clock, seed=2):
    return open_index(store, clock=clock, seed=seed)._site


def test_a_lock_says_whose_it_is_and_when_it_ends(store, clock):
    mine = site(store, clock)
    assert acquire(mine, "5e") is not None
    told = orjson.loads(store.read(KEY).body)
    assert told["worker_id"] == mine.worker_id
    assert told["created_at"] == "2023-11-14T22:13:20.000000Z"
    assert told["expires_at"] == "2023-11-14T22:18:20.000000Z"
    assert len(told["nonce"]) == 16


def test_a_lock_has_one_holder_and_is_free_after_its_release(store, clock):
    one, two = site(store, clock, 2), site(store, clock, 3)
    lock = acquire(one, "5e")
    assert acquire(two, "5e") is None
    assert acquire(two, "a0") is not None
    lock.release()
    assert acquire(two, "5e", seen=True) is not None


def test_a_lock_that_is_over_is_taken_by_one_of_two(store, clock):
    acquire(site(store, clock, 2), "5e")
    clock.advance(302)
    won = []
    other = site(store, clock, 3)
    mine = site(Paired(store, "replace", lambda: won.append(acquire(other, "5e"))), clock, 4)
    assert acquire(mine, "5e") is None
    assert won[0] is not None


def test_a_lock_that_was_free_is_taken_by_one_of_two(store, clock):
    won = []
    other = site(store, clock, 3)
    mine = site(Paired(store, "create", lambda: won.append(acquire(other, "5e"))), clock, 4)
    assert acquire(mine, "5e") is None
    assert won[0] is not None


def test_a_renewed_lock_lives_on(store, clock):
    one, two = site(store, clock, 2), site(store, clock, 3)
    lock = acquire(one, "5e")
    for _ in range(5):
        clock.advance(200)
        lock.renew()
        assert acquire(two, "5e") is None
    clock.advance(302)
    assert acquire(two, "5e") is not None
    lock.renew()
    assert lock.lost


def test_a_lock_that_was_taken_over_is_not_released_by_its_former_holder(store, clock):
    lock = acquire(site(store, clock, 2), "5e")
    clock.advance(302)
    acquire(site(store, clock, 3), "5e")
    body = store.read(KEY).body
    lock.release()
    assert store.read(KEY).body == body


def test_without_conditional_delete_a_lock_is_released_all_the_same(store, clock):
    store.conditional_delete = False
    one = acquire(site(store, clock, 2), "5e")
    one.release()
    assert store.read(KEY) is None
    two = acquire(site(store, clock, 2), "5e")
    clock.advance(302)
    acquire(site(store, clock, 3), "5e")
    two.release()
    assert store.read(KEY) is not None


def test_only_a_lock_that_is_over_is_swept(store, clock):
    mine = site(store, clock)
    acquire(mine, "5e")
    assert sweep(mine, "5e") is False
    clock.advance(302)
    assert sweep(mine, "5e") is True
    assert store.read(KEY) is None
    assert sweep(mine, "5e") is False


def test_a_lock_from_the_far_future_is_over(store, clock):
    acquire(site(store, clock), "5e")
    clock.jump_wall(-7_300)
    assert acquire(site(store, clock, 3), "5e") is not None


def test_the_keeper_renews_what_it_holds_until_it_is_let_go(store, clock):
    mine = site(store, clock)
    with Keeper(every_seconds=1_000) as keeper:
        lock = acquire(mine, "5e")
        keeper.hold(lock)
        before = store.read(KEY).body
        clock.advance(100)
        keeper.renew_all()
        assert store.read(KEY).body != before
        keeper.let_go(lock)
        assert store.read(KEY) is None
        keeper.renew_all()
        assert store.read(KEY) is None


def test_a_renewal_that_fails_is_told_and_tried_again(store, clock, monkeypatch):
    mine, told = site(store, clock), []
    keeper = Keeper(1_000, told.append)
    lock = acquire(mine, "5e")
    keeper.hold(lock)
    with monkeypatch.context() as patch:

        def away(*_args):
            raise QueueUnavailable("away")

        patch.setattr(mine.writes, "replace", away)
        keeper.renew_all()
    assert len(told) == 1
    keeper.renew_all()
    assert not lock.lost
    keeper.let_go(lock)
    keeper.__exit__()


def test_the_keeper_s_thread_renews_by_itself(store, clock, monkeypatch):
    import threading

    mine = site(store, clock)
    renewed = threading.Event()
    with Keeper(every_seconds=0.001) as keeper:
        lock = acquire(mine, "5e")
        monkeypatch.setattr(lock, "renew", renewed.set)
        keeper.hold(lock)
        assert renewed.wait(10)
