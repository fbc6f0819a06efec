"""Completed tasks, a hundred in one object: found by the names of the objects, and counted once."""

from __future__ import annotations

import itertools
from typing import Any

import orjson
import pytest

from dfq.engines.s3.fold_names import name_of, probe_of, read_name
from dfq.engines.s3.queue import S3Queue
from dfq.errors import QueueUnavailable
from dfq.policy import Policy
from dfq.stores.memory import MemoryStore
from dfq.testing import FakeClock, SeededChance

FOLDS = 500


class Bucket:
    """A bucket whose requests are counted, and handles on a queue in it."""

    def __init__(self, **policy: Any) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore(clock=self.clock)
        self._policy = Policy(**policy)
        self._handles = itertools.count(1)

    def open(self, *, parallel: int = 1) -> S3Queue:
        return S3Queue(
            self.store,
            clock=self.clock,
            chance=SeededChance(next(self._handles)),
            policy=self._policy,
            parallel=parallel,
            certified=True,
        )

    def complete(self, count: int) -> None:
        queue = self.open()
        queue.push_many([queue.new_task(n, id=f"t{n}") for n in range(count)])
        while lease := queue.claim():
            queue.ack(lease)

    def spent(self, call: Any) -> dict[str, int]:
        before = self.store.requests.snapshot()
        call()
        return {kind: n - before[kind] for kind, n in self.store.requests.snapshot().items()}


def record(task_id: str, ended_at: float) -> dict[str, Any]:
    return {
        "dfq": 1, "task_id": task_id, "state": "completed", "finished_at": ended_at,
        "lease_id": f"l-{task_id}", "fence": 1, "task": {"dfq": 1, "id": task_id, "payload": 1},
    }  # fmt: skip


def lines(records: list[dict[str, Any]]) -> bytes:
    return b"".join(orjson.dumps(one) + b"\n" for one in records)


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


@pytest.fixture
def full() -> Bucket:
    """A bucket with many folds."""
    bucket = Bucket(finished="drop", finished_after_seconds=1e6)
    for number in range(FOLDS):
        ended = bucket.clock.wall() - number
        records = [record(f"t{number}-{k}", ended) for k in range(100)]
        bucket.store.put(name_of(records), lines(records))
    return bucket


# Names


@pytest.mark.parametrize("count", [1, 2, 7, 60, 100])
def test_a_name_tells_nearly_all_ids_that_are_not_in_it(count):
    name = name_of([record(f"task-{n}", 1e9 + n / 3) for n in range(count)])
    assert len(name.rsplit("/", 1)[1]) <= 255
    told = read_name(name)
    assert told.count == count
    assert all(told.may_have(probe_of(f"task-{n}")) for n in range(count))
    assert all(told.may_span(1e9 + n / 3) for n in range(count))
    others = sum(told.may_have(probe_of(f"other-{n}")) for n in range(10_000))
    assert others < 50
    assert not told.may_span(1e9 - 2)
    assert not told.may_span(1e9 + 102)


def test_a_name_is_that_of_what_is_in_it_and_of_nothing_else():
    records = [record(f"t{n}", 5.0) for n in range(3)]
    assert name_of(records) == name_of(records[::-1])
    assert name_of(records) != name_of(records[:2])
    again = [{**one, "lease_id": "another"} for one in records]
    assert name_of(records) != name_of(again)


@pytest.mark.parametrize(
    "key",
    ["completed/x", "completed/2026-01-01/mine.jsonl", "completed/2026-01-01/1-2-3-4-5.jsonl"],
)
def test_a_name_of_somebody_else_tells_nothing(key):
    told = read_name(key)
    assert told.count is None
    assert told.may_have(probe_of("t"))


# Looking for an id


def test_a_given_id_costs_no_read_of_the_folds_that_can_not_have_it(full):
    spent = full.spent(lambda: full.open().push(1, id="new"))
    assert spent["list"] == 1
    assert spent["get"] <= 3 + 10


def test_an_unknown_id_costs_no_read_of_the_folds_that_can_not_have_it(full):
    queue = full.open()
    spent = full.spent(lambda: queue.get("unknown"))
    assert spent["list"] <= 2
    assert spent["get"] <= 6 + 10


def test_a_completed_task_is_found_with_hardly_a_read_more_than_its_own(full):
    spent = full.spent(lambda: full.open().get("t321-45"))
    assert spent["get"] <= 3 + 10
    assert full.open().get("t321-45").state == "completed"
    assert not full.open().push_many([full.open().new_task(1, id="t321-45")])[0].created


def test_a_sweep_reads_no_fold_that_is_too_young_to_drop(full):
    full.open().sweep()
    assert full.spent(full.open().sweep)["get"] == 0


def test_what_was_folded_under_a_name_without_a_filter_is_found_as_well(bucket):
    for number in range(3):
        key = f"completed/2026-01-01/{number:015d}-01hf7yat00gntmj5rrvrtqwfd8-0123abcd-1.jsonl"
        bucket.store.put(key, lines([record(f"t{number}", 5.0)]))
    queue = bucket.open(parallel=4)
    assert [queue.get(f"t{number}").state for number in range(3)] == ["completed"] * 3
    assert queue.stats().completed == 3
    assert bucket.spent(lambda: queue.get("unknown"))["get"] <= 6


# Folding once


def test_workers_that_sweep_at_the_same_time_count_each_task_once(bucket):
    bucket.complete(250)
    bucket.clock.advance(3_600.0)
    one, other = bucket.open(), bucket.open()
    census = one._looking.census

    def interrupted(*args):
        found = census(*args)
        one._looking.census = census
        other.sweep()
        return found

    one._looking.census = interrupted
    one.sweep()
    queue = bucket.open()
    assert queue.stats().completed == len(list(queue.list("completed"))) == 250
    assert len(bucket.store.list("completed/").entries) == 3
    assert bucket.store.list("pending/").entries == ()


@pytest.mark.parametrize("tidied", [0, 1, 30])
def test_a_fold_that_was_cut_short_is_not_folded_again(bucket, tidied):
    bucket.complete(50)
    bucket.clock.advance(3_600.0)
    dying = bucket.open()
    tidy, deaths = dying._finished._tidy, itertools.count()

    def die(lease):
        if next(deaths) == tidied:
            raise QueueUnavailable("gone")
        tidy(lease)

    dying._finished._tidy = die
    with pytest.raises(QueueUnavailable):
        dying.sweep()
    queue = bucket.open()
    queue.sweep()
    assert queue.stats().completed == 50
    assert bucket.store.list("pending/").entries == ()


def test_a_record_that_a_damaged_fold_lacks_is_folded_anew(bucket):
    bucket.complete(5)
    bucket.clock.advance(3_600.0)
    dying = bucket.open()

    def die(lease):
        raise QueueUnavailable("gone")

    dying._finished._tidy = die
    with pytest.raises(QueueUnavailable):
        dying.sweep()
    (entry,) = bucket.store.list("completed/").entries
    bucket.store.put(entry.key, b"\n".join(bucket.store.read(entry.key).body.splitlines()[:3]))
    queue = bucket.open()
    queue.sweep()
    assert {one.task.id for one in queue.list("completed")} == {f"t{n}" for n in range(5)}
