"""Verbs are safe from threads, through one handle or several."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from dfq import DuplicateTask, LeaseLost

THREADS = 8

pytestmark = pytest.mark.races


def run_at_once(function, count=THREADS):
    """Call ``function(i)`` in ``count`` threads that start together; their answers."""
    barrier = threading.Barrier(count)

    def start(i):
        barrier.wait(30)
        return function(i)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(start, range(count)))


@pytest.fixture(params=["one handle", "a handle each"])
def handles(request, engine):
    first = engine.open_queue()
    if request.param == "one handle":
        return [first] * THREADS
    return [first, *(engine.reopen() for _ in range(THREADS - 1))]


def test_every_task_is_claimed_by_one_thread_only(handles):
    handles[0].push_many(handles[0].new_task(i, id=f"t{i}") for i in range(200))

    def work(i):
        done = []
        while lease := handles[i].claim(f"w{i}"):
            handles[i].ack(lease, i)
            done.append(lease.task_id)
        return done

    done = [task_id for ids in run_at_once(work) for task_id in ids]
    assert sorted(done) == sorted(f"t{i}" for i in range(200))
    assert handles[0].stats().completed == 200


def test_claims_of_many_do_not_overlap(handles):
    handles[0].push_many(handles[0].new_task(i, id=f"t{i}") for i in range(100))
    claimed = run_at_once(lambda i: handles[i].claim_many(30, f"w{i}"))
    counts = Counter(lease.task_id for leases in claimed for lease in leases)
    assert counts == Counter(f"t{i}" for i in range(100))


def test_one_of_many_acks_wins(handles):
    handles[0].push(1, id="a")
    lease = handles[0].claim("w")

    def ack(i):
        try:
            handles[i].ack(lease, i)
        except LeaseLost:
            return None
        return i

    winners = [i for i in run_at_once(ack) if i is not None]
    assert len(winners) == 1
    assert handles[0].get("a").result == winners[0]


def test_one_way_to_end_a_lease_wins(handles, settle):
    for n in range(5):
        handles[0].push(1, id=f"a{n}", max_attempts=1)
        lease = handles[0].claim("w")

        def end(i, lease=lease):
            try:
                settle(["ack", "nack", "bury"][i % 3], handles[i], lease)
            except LeaseLost:
                return 0
            return 1

        assert sum(run_at_once(end)) == 1
        record = handles[0].get(f"a{n}")
        assert record.state in ("completed", "failed")
        assert len(record.task.errors) == (record.state == "failed")


def test_one_push_of_an_id_wins(handles):
    def push(i):
        try:
            handles[i].push(i, id="same")
        except DuplicateTask:
            return None
        return i

    winners = [i for i in run_at_once(push) if i is not None]
    assert len(winners) == 1
    assert handles[0].get("same").task.payload == winners[0]
    assert handles[0].stats().pending == 1


def test_one_of_many_takes_over_a_dead_lease(engine, clock):
    first = engine.open_queue(lease_seconds=60)
    handles = [first, *(engine.reopen() for _ in range(THREADS - 1))]
    first.push(1, id="a")
    first.claim("dead")
    clock.advance(61)
    leases = [lease for lease in run_at_once(lambda i: handles[i].claim(f"w{i}")) if lease]
    assert len(leases) == 1
    assert leases[0].attempt == 2
    assert len(first.get("a").task.errors) == 1


def test_nothing_is_lost_between_failures_and_retries(handles):
    handles[0].push_many(handles[0].new_task(i, id=f"t{i}", max_attempts=100) for i in range(60))

    def work(i):
        while lease := handles[i].claim(f"w{i}"):
            if lease.attempt < 3:
                handles[i].nack(lease, "not yet", delay=0)
            else:
                handles[i].ack(lease)

    run_at_once(work)
    records = list(handles[0].list())
    assert Counter(record.state for record in records) == {"completed": 60}
    assert all(len(record.task.errors) == 2 for record in records)
    assert all(record.lease.fence == 3 for record in records)
