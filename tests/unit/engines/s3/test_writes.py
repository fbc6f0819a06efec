"""Writes whose answers don't come: looked at, sent again after a pause, and bounded."""

from __future__ import annotations

import threading

import pytest

from dfq.engines.s3.keys import home
from dfq.engines.s3.queue import S3Queue
from dfq.engines.s3.writes import FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS, TRIES, Writes
from dfq.errors import QueueUnavailable, StoreUnsure
from dfq.policy import Policy
from dfq.store import Exists
from dfq.stores.memory import MemoryStore
from dfq.stores.s3 import S3Store
from dfq.testing import FakeClock, SeededChance
from tests.patience import patience
from tests.servers import free_ports

LONG = patience(20.0)
HELD = 8


class Unsure(MemoryStore):
    """A store that answers to no write, and may not answer to a read either."""

    blind = False

    def create(self, key, body):
        raise StoreUnsure(key)

    def replace(self, key, body, etag):
        raise StoreUnsure(key)

    def delete(self, key, etag=None):
        raise StoreUnsure(key)

    def read(self, key):
        if self.blind:
            raise QueueUnavailable(key)
        return super().read(key)


@pytest.mark.parametrize("blind", [False, True])
@pytest.mark.parametrize(
    "write",
    [
        lambda writes: writes.create("a", b"1"),
        lambda writes: writes.delete("a", "0"),
    ],
    ids=["create", "delete"],
)
def test_a_write_in_doubt_is_sent_again_after_growing_pauses_and_not_for_ever(write, blind):
    store, pauses = Unsure(), []
    store.blind = blind
    with pytest.raises(StoreUnsure):
        write(Writes(store, SeededChance(1), pauses.append))
    longest = [min(LONGEST_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2**n) for n in range(TRIES - 1)]
    assert len(pauses) == len(longest)
    assert all(most / 2 <= pause <= most for pause, most in zip(pauses, longest, strict=True))


def test_a_write_that_is_answered_waits_for_nothing():
    pauses = []
    writes = Writes(MemoryStore(), SeededChance(1), pauses.append)
    written = writes.create("a", b"1")
    assert not writes.create("a", b"2").won
    assert writes.replace("a", b"3", written.etag).won
    assert pauses == []


class Contradicting(MemoryStore):
    """A store that says of one key that it is there, and that it is not."""

    def create(self, key, body):
        if key.startswith("workers/"):
            raise Exists(key)
        return super().create(key, body)


def test_a_sign_of_life_that_can_not_be_written_is_told_and_not_tried_for_ever():
    queue = S3Queue(Contradicting(), certified=True)
    queue.push(1)
    lease = queue.claim()
    with pytest.raises(StoreUnsure, match="the sign of life"):
        queue.heartbeat(lease)
    queue.ack(lease)


class Meeting(MemoryStore):
    """A store in which reads of leases wait for each other, once told to."""

    barrier: threading.Barrier | None = None

    def read(self, key):
        if self.barrier is not None and key.endswith("lease.json"):
            self.barrier.wait(LONG)
        return super().read(key)


def test_a_heartbeat_looks_after_several_leases_at_once():
    store = Meeting()
    queue = S3Queue(store, certified=True, parallel=HELD)
    queue.push_many([queue.new_task(n) for n in range(HELD)])
    leases = queue.claim_many(HELD)
    store.barrier = threading.Barrier(HELD)
    assert [one.lease_id for one in queue.heartbeat_many(leases)] == [
        one.lease_id for one in leases
    ]


def test_a_lease_that_ends_while_it_is_renewed_is_not_held_again():
    clock = FakeClock()
    queue = S3Queue(MemoryStore(clock=clock), clock=clock, certified=True)
    queue.push(1)
    lease = queue.claim()
    commit = queue._settling._commit

    def ended_meanwhile(held, **changes):
        answer = commit(held, **changes)
        queue._settling._commit = commit
        queue.ack(lease)
        return answer

    queue._settling._commit = ended_meanwhile
    clock.advance(10_000.0)
    queue._settling.heartbeat([lease], 60.0)
    assert queue._beats.get(lease.lease_id) is None


# The date of a task


class Slow(MemoryStore):
    """A store to which every task takes a second."""

    def create(self, key, body):
        if key.endswith("task.json"):
            self._clock.advance(1.0)
        return super().create(key, body)


@pytest.fixture
def slow():
    clock = FakeClock()
    return S3Queue(Slow(clock=clock), clock=clock, parallel=1, certified=True)


def test_many_tasks_on_a_slow_link_do_not_look_late(slow):
    slow.push_many([slow.new_task(n) for n in range(200)])
    before = slow.store.requests.snapshot()
    assert len(slow.claim_many(50)) == 50
    spent = {kind: n - before[kind] for kind, n in slow.store.requests.snapshot().items()}
    assert (spent["put"], spent["get"], spent["list"]) == (50, 50, 1)


def test_a_given_id_is_dated_before_it_is_looked_up(slow):
    begun = slow.clock.wall()
    look = slow._pushing._finished_before

    def looked(ids):
        slow._bucket.own_clock.advance(30.0)
        return look(ids)

    slow._pushing._finished_before = looked
    slow.push(1, id="t")
    assert slow._bucket.read_task("t", home("t")).written_at == begun


# The end


def test_the_last_words_of_a_handle_are_tried_once(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "y")
    (port,) = free_ports(1)
    store = S3Store(f"s3://bucket/q?endpoint=http://127.0.0.1:{port}&addressing=path")
    queue = S3Queue(store, policy=Policy(), certified=True)
    store._requests.server_clock.saw(1_700_000_000.0)
    queue._bucket.tally.add("claimed")
    for _ in range(100):
        store.requests.add("get")
    queue.close()
    assert store.requests.snapshot()["put"] == 1
