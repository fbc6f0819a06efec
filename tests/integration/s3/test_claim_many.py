"""Several tasks at once: what one attempt fails with takes nothing from the others."""

from __future__ import annotations

import pytest

from dfq.engines.s3.keys import home, lease_key, task_key
from dfq.engines.s3.queue import S3Queue
from dfq.errors import QueueUnavailable, StoreRefused
from dfq.stores.memory import MemoryStore
from dfq.testing import FakeClock, SeededChance

IDS = "abcdefgh"


class Flaky(MemoryStore):
    """Some reads of tasks raise."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock=clock)
        self.broken: dict[str, Exception] = {}

    def read(self, key):
        if key in self.broken:
            raise self.broken[key]
        return super().read(key)


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def store(clock):
    return Flaky(clock)


@pytest.fixture
def queue(store, clock):
    queue = S3Queue(store, clock=clock, chance=SeededChance(1), certified=True, parallel=8)
    queue.push_many([queue.new_task(1, id=task_id, max_attempts=1) for task_id in IDS])
    return queue


def held_in(store):
    keys = [one.key for one in store.list("pending/").entries]
    return {key.split("/")[2] for key in keys if key.endswith("lease.json")}


@pytest.mark.parametrize("error", [QueueUnavailable("no"), StoreRefused("no")], ids=repr)
@pytest.mark.parametrize("broken", IDS)
def test_tasks_that_were_taken_beside_one_that_failed_are_handed_out(queue, store, broken, error):
    store.broken = {task_key(home(broken)): error}
    leases = queue.claim_many(8, "worker")
    assert {lease.task_id for lease in leases} == set(IDS) - {broken}
    assert held_in(store) == set(IDS) - {broken}
    for lease in leases:
        queue.ack(lease)
    store.broken = {}
    assert [lease.task_id for lease in queue.claim_many(8, "worker")] == [broken]


def test_the_error_is_raised_if_nothing_was_taken(queue, store):
    store.broken = {task_key(home(task_id)): QueueUnavailable("no") for task_id in IDS}
    with pytest.raises(QueueUnavailable):
        queue.claim_many(8, "worker")
    assert held_in(store) == set()
    store.broken = {}
    assert len(queue.claim_many(8, "worker")) == 8


@pytest.mark.parametrize("broken", IDS)
def test_a_bug_in_one_attempt_leaves_no_lease_that_nobody_has(queue, store, broken):
    store.broken = {task_key(home(broken)): RuntimeError("a bug")}
    with pytest.raises(RuntimeError):
        queue.claim_many(8, "worker")
    assert held_in(store) == set()
    assert queue._beats._held == {}
    store.broken = {}
    assert {lease.task_id for lease in queue.claim_many(8, "worker")} == set(IDS)


def test_an_interrupted_claim_keeps_no_lease_alive(queue, store):
    # What is interrupted can't ask the store for anything more; the leases end in time.
    lease_was_taken = lease_key(home("a"))
    store.broken = {task_key(home("a")): KeyboardInterrupt()}
    with pytest.raises(KeyboardInterrupt):
        queue.claim_many(8, "worker")
    assert store.read(lease_was_taken) is not None
    assert queue._beats._held == {}
