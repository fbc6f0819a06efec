"""An outcome that nobody confirmed and that arrives before it is said again: the first counts."""

from __future__ import annotations

import pytest

from dfq.engines.s3.keys import home, lease_key
from dfq.engines.s3.queue import S3Queue
from dfq.errors import QueueUnavailable, StoreUnsure
from dfq.policy import Policy
from dfq.stores.memory import MemoryStore
from dfq.testing import FakeClock, SeededChance


class Late(MemoryStore):
    """While ``away``, what is written to a lease is kept back, and nothing can be read."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock=clock)
        self.away = False
        self.kept_back: list[tuple[str, bytes, str]] = []

    def replace(self, key, body, etag):
        if self.away and key == lease_key(home("a")):
            self.kept_back.append((key, body, etag))
            raise StoreUnsure("no answer")
        return super().replace(key, body, etag)

    def read(self, key):
        if self.away:
            raise QueueUnavailable("no answer")
        return super().read(key)

    def arrive(self):
        """The first of what was kept back is carried out."""
        self.away = False
        super().replace(*self.kept_back[0])


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def store(clock):
    return Late(clock)


@pytest.fixture
def queue(store, clock):
    queue = S3Queue(
        store,
        policy=Policy(max_attempts=2),
        clock=clock,
        chance=SeededChance(1),
        certified=True,
        pause=lambda seconds: None,
    )
    queue.push(1, id="a")
    return queue


def test_a_failure_that_is_told_again_stands_in_the_history_as_it_was_told_first(
    queue, store, clock
):
    lease = queue.claim("worker")
    store.away = True
    with pytest.raises(StoreUnsure):
        queue.nack(lease, "as told first")
    store.arrive()
    clock.advance(1)
    queue.nack(lease, "as told again", delay=0)
    record = queue.get("a")
    assert [error.message for error in record.task.errors] == ["as told first"]


def test_a_result_that_is_told_again_is_the_one_told_first(queue, store, clock):
    lease = queue.claim("worker")
    store.away = True
    with pytest.raises(StoreUnsure):
        queue.ack(lease, "first")
    store.arrive()
    clock.advance(1)
    queue.ack(lease, "again")
    assert queue.get("a").result == "first"
    # Folded, too.
    clock.advance(3600)
    queue.sweep()
    assert queue.get("a").result == "first"
