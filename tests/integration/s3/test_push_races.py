"""A push of a given id looks once more after its write; what happened meanwhile is no duplicate."""

from __future__ import annotations

import pytest

from dfq.engines.s3.keys import home, lease_key, task_key
from dfq.engines.s3.queue import S3Queue
from dfq.policy import Policy
from dfq.stores.memory import MemoryStore
from dfq.testing import FakeClock, SeededChance


class Quick(MemoryStore):
    """Something happens right after a task was written, before its lease is looked for."""

    def __init__(self, clock: FakeClock, conditional_delete: bool) -> None:
        super().__init__(clock=clock)
        self.conditional_delete = conditional_delete
        self.then = lambda: None
        self.written = False

    def create(self, key, body):
        etag = super().create(key, body)
        self.written = self.written or key == task_key(home("a"))
        return etag

    def replace(self, key, body, etag):
        etag = super().replace(key, body, etag)
        self.written = self.written or key == task_key(home("a"))
        return etag

    def read(self, key):
        if self.written and key == lease_key(home("a")):
            then, self.then = self.then, lambda: None
            then()
        return super().read(key)


def ack(other):
    other.ack(other.claim("quick"), {"done": True})


def nack(other):
    other.nack(other.claim("quick"), "no")


def bury(other):
    other.bury(other.claim("quick"), "no")


def cancel(other):
    other.cancel("a")


@pytest.mark.parametrize("conditional_delete", [True, False])
@pytest.mark.parametrize("end", [ack, nack, bury, cancel])
def test_a_task_that_ends_while_its_push_still_looks_was_pushed(end, conditional_delete):
    clock = FakeClock()
    store = Quick(clock, conditional_delete)
    policy = Policy(max_attempts=1)

    def opened(seed):
        chance = SeededChance(seed)
        return S3Queue(store, policy=policy, clock=clock, chance=chance, certified=True)

    queue, other = opened(1), opened(2)
    store.then = lambda: end(other)
    (pushed,) = queue.push_many([queue.new_task(1, id="a")])
    assert pushed.created
    record = queue.get("a")
    assert record is not None
    assert record.state == ("completed" if end is ack else "failed")
    # And it is known ever after.
    (again,) = queue.push_many([queue.new_task(1, id="a")])
    assert (again.created, again.state) == (False, record.state)
