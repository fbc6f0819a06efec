"""One field of one object is not what it should be: the object's own task may suffer, no other."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dfq.engines.s3.keys import failed_key, home, lease_key, task_key
from dfq.engines.s3.queue import S3Queue
from dfq.errors import DfqError
from dfq.policy import Policy
from dfq.store import MAX_BODY_BYTES
from dfq.stores.memory import MemoryStore
from dfq.testing import FakeClock, SeededChance

POLICY = Policy(
    lease_seconds=60.0, heartbeat_seconds=20.0, finished="drop", finished_after_seconds=1e6
)
GONE = object()
DEEP: Any = []
for _ in range(300):
    DEEP = [DEEP]

ODD = (
    GONE, None, True, -1, 5, 1e300, 2**53, 2**63, "", "soon", "inf",
    "0001-01-01T00:00:00+14:00", "\n\u2028", "x" * 3000, [1], {}, {"x": 1}, DEEP,
)  # fmt: skip


class Place:
    """A bucket with a task that something happened to, and two that wait beside it."""

    def __init__(self, happens: Callable[[Place], str]) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore(clock=self.clock)
        self._handles = 0
        self.key = happens(self)
        queue = self.open()
        for name in ("a", "b"):
            queue.push(1, id=name)
        self.clock.advance(1.0)

    def again(self) -> Place:
        """The same, in a bucket of its own."""
        place = copy.copy(self)
        place.clock = FakeClock(self.clock.wall(), self.clock.boot())
        place.store = MemoryStore(clock=place.clock)
        for entry in self.store.list("").entries:
            place.store.put(entry.key, self.store.read(entry.key).body)
        return place

    def open(self) -> S3Queue:
        self._handles += 1
        return S3Queue(
            self.store,
            clock=self.clock,
            chance=SeededChance(self._handles),
            policy=POLICY,
            parallel=1,
            certified=True,
        )

    def claimed(self) -> tuple[S3Queue, Any]:
        queue = self.open()
        queue.push({"n": 1}, id="t", priority="high", labels=["l"], depends_on=["d"], ttl=1e6)
        queue.push(1, id="d")
        for _ in range(2):
            lease = queue.claim("w")
            if lease.task_id == "t":
                break
            queue.ack(lease)
        assert lease.task_id == "t"
        return queue, lease

    def with_fields(self, key: str, **changes: Any) -> str:
        fields = json.loads(self.store.read(key).body)
        self.store.put(key, json.dumps({**fields, **changes}).encode())
        return key


def leased(place: Place) -> str:
    queue, lease = place.claimed()
    queue.save_state(lease, {"step": 1})
    return lease_key(home("t"))


def given_back(place: Place) -> str:
    place.claimed()
    error = {
        "at": "2023-11-14T22:13:20Z", "attempt": 1, "fence": 1, "worker_id": "w",
        "kind": "error", "message": "no",
    }  # fmt: skip
    return place.with_fields(
        lease_key(home("t")),
        state="back",
        attempts=1,
        error=error,
        not_before="2023-11-14T22:14:20Z",
        finished_at="2023-11-14T22:13:20Z",
        aside=30.0,
    )


def completed(place: Place) -> str:
    queue, lease = place.claimed()
    queue.ack(lease, {"r": 1})
    return lease_key(home("t"))


def failed(place: Place) -> str:
    queue, lease = place.claimed()
    queue.bury(lease, "hopeless")
    return lease_key(home("t"))


def record_of_a_failure(place: Place) -> str:
    failed(place)
    return failed_key("t")


def task(place: Place) -> str:
    queue, lease = place.claimed()
    queue.save_state(lease, [1])
    queue.nack(lease, "no", delay=10.0)
    return task_key(home("t"))


def beat(place: Place) -> str:
    queue, lease = place.claimed()
    queue.heartbeat(lease)
    (entry,) = place.store.list("workers/").entries
    return entry.key


def folded(place: Place) -> str:
    completed(place)
    place.clock.advance(3_600.0)
    place.open().sweep()
    place.open().purge("completed", older_than_seconds=1e6)
    (entry,) = place.store.list("completed/").entries
    lines = place.store.read(entry.key).body.splitlines()
    (line,) = [one for one in lines if json.loads(one)["task_id"] == "t"]
    place.store.put(entry.key, line)
    return entry.key


KINDS = (leased, given_back, completed, failed, record_of_a_failure, task, beat, folded)


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something stands in a body, down to the single numbers."""
    if path:
        yield path
    if isinstance(value, dict) and len(path) < 4:
        for key in value:
            yield from paths(value[key], (*path, key))
    elif isinstance(value, list):
        for number in range(len(value)):
            yield from paths(value[number], (*path, number))


def changed(body: Any, path: tuple[Any, ...], value: Any) -> bytes:
    whole = copy.deepcopy(body)
    inner = whole
    for step in path[:-1]:
        inner = inner[step]
    if value is GONE:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return json.dumps(whole).encode()


def check(place: Place, body: bytes) -> None:
    """All verbs, before the lease is over and long after it; both neighbours are worked off."""
    place.store._put(place.key, body)
    queue = place.open()
    for look in (lambda: list(queue.list()), queue.stats, queue.leases, queue.usage):
        look()
    try:
        queue.get("t")
        queue.load_state("t")
    except DfqError:
        pass
    done = set()
    for seconds in (0.0, 2_000.0, 100_000.0):
        place.clock.advance(seconds)
        queue = place.open()
        for lease in queue.claim_many(9):
            queue.ack(lease)
            done.add(lease.task_id)
        queue.sweep()
    assert done >= {"a", "b"}
    queue = place.open()
    list(queue.list()), queue.stats(), queue.usage()
    queue.push(1, id="after", depends_on=["a"])
    assert [lease.task_id for lease in queue.claim_many(9)][-1:] == ["after"]
    queue.purge("completed")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("happens", KINDS, ids=lambda one: one.__name__)
def test_an_odd_field_stops_nobody_else(happens):
    begun = Place(happens)
    body = json.loads(begun.store.read(begun.key).body)
    for path in paths(body):
        for value in ODD:
            try:
                check(begun.again(), changed(body, path, value))
            except BaseException as error:
                error.add_note(f"{path} is {str(value)[:80]}")
                raise


@pytest.mark.parametrize("happens", KINDS, ids=lambda one: one.__name__)
@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'"x"', bytes(MAX_BODY_BYTES + 1)], ids=len)
def test_an_odd_body_stops_nobody_else(happens, body):
    check(Place(happens), body)
