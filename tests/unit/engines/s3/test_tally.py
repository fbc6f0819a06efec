from __future__ import annotations

import os

import pytest

from dfq.engines.s3.queue import S3Queue
from dfq.engines.s3.tally import TELL_REQUESTS, Tally
from dfq.errors import QueueUnavailable
from dfq.store import RequestCounter
from dfq.stores.memory import MemoryStore
from dfq.testing import FakeClock


class OwnCount(MemoryStore):
    """The same objects for several processes, each with a count of its own."""

    def __init__(self, shared: MemoryStore) -> None:
        vars(self).update(vars(shared))
        self.requests = RequestCounter()


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def store(clock):
    return MemoryStore(clock=clock)


@pytest.fixture
def open_process(store, clock):
    return lambda: S3Queue(OwnCount(store), clock=clock, parallel=1, certified=True)


def beats(store):
    return [entry.key for entry in store.list("workers/").entries]


def work_off(queue):
    done = 0
    while (lease := queue.claim("worker")) is not None:
        queue.ack(lease)
        done += 1
    return done


def test_what_a_worker_did_is_known_after_its_end(open_process, store):
    pusher, worker, looker = open_process(), open_process(), open_process()
    pusher.push_many([pusher.new_task(n) for n in range(TELL_REQUESTS)])
    pusher.close()
    assert work_off(worker) == TELL_REQUESTS
    worker.close()
    told = {(one.pushed, one.claimed, one.completed): one for one in looker.usage()}
    assert set(told) == {(100, 0, 0), (0, 100, 100), (0, 0, 0)}
    assert told[100, 0, 0].requests["put"] == 100
    assert told[0, 100, 100].requests["put"] == 200
    assert told[0, 100, 100].requests["get"] >= 100


def test_telling_costs_at_most_a_hundredth_of_what_is_told(open_process, store):
    pusher = open_process()
    pusher.push("one")
    pusher.close()
    assert beats(store) == []
    worker = open_process()
    for _ in range(10):
        worker.sweep()
    worker.close()
    assert beats(store) == []


def test_who_only_looks_writes_nothing(open_process, store):
    looker = open_process()
    for _ in range(TELL_REQUESTS):
        looker.get("nobody")
    looker.close()
    assert beats(store) == []


def test_an_idle_worker_tells_when_it_sweeps(open_process, store):
    worker = open_process()
    for _ in range(TELL_REQUESTS):
        worker.claim("idle")
    worker.sweep()
    assert len(beats(store)) == 1
    worker.sweep()
    puts = worker.store.requests.snapshot()["put"]
    assert puts == 1, "nothing new was worth telling"


def test_a_beat_tells_for_nothing(open_process, store, clock):
    worker, looker = open_process(), open_process()
    worker.push("task")
    lease = worker.claim("worker")
    clock.advance(60)
    before = worker.store.requests.snapshot()
    worker.heartbeat(lease)
    after = worker.store.requests.snapshot()
    assert after["put"] - before["put"] == 1
    (told,) = [one for one in looker.usage() if one.claimed]
    assert told.until - told.since == 60
    assert told.requests["put"] == before["put"]
    assert len(worker.usage()) == 1, "what it told itself does not count twice"


def test_telling_renews_no_lease(open_process, store, clock):
    worker, other = open_process(), open_process()
    worker.push("task")
    lease = worker.claim("worker", lease_seconds=100)
    for _ in range(TELL_REQUESTS):
        worker.get("nobody")
    clock.advance(60)
    worker.sweep()
    assert len(beats(store)) == 1
    clock.advance(50)
    taken = other.claim("other")
    assert taken is not None and taken.fence > lease.fence


def test_a_store_that_fails_does_not_keep_a_worker_from_ending(open_process):
    worker = open_process()
    worker.push_many([worker.new_task(n) for n in range(TELL_REQUESTS)])

    def fail(key, body):
        raise QueueUnavailable("gone")

    worker.store.put = fail
    worker.close()


def test_a_forked_child_counts_from_nothing(clock, monkeypatch):
    counter = RequestCounter()
    tally = Tally(counter, clock)
    counter.add("put")
    tally.add("pushed")
    clock.advance(60)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    counter.add("get")
    child = tally.usage()
    assert child.requests == {"put": 0, "get": 0, "list": 0, "delete": 0}
    assert (child.pushed, child.until - child.since) == (0, 0)


def test_beats_that_are_damaged_or_of_another_version_are_passed_over(open_process, store):
    store.put("workers/a.json", b"{")
    store.put("workers/b.json", b'{"leases": {}}')
    store.put("workers/c.json", b'{"since": 1, "until": 2, "requests": {"put": -1}}')
    store.put("workers/d.json", b'{"since": 1, "until": 2, "requests": {"put": 7}}')
    usages = open_process().usage()
    assert [one.requests["put"] for one in usages] == [7, 0]
