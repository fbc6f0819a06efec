"""10,000 operations of a queue over a network that drops, delays, cuts and repeats.

Several workers push, claim, renew, ack and nack through the proxy. What a verb said is noted; then
the truth is read from the store itself, past the proxy, and compared.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import permutations
from typing import NamedTuple, TypeVar

import pytest

from dfq.ambient import SYSTEM_CLOCK
from dfq.engines.s3.queue import S3Queue
from dfq.errors import DfqError, LeaseLost, QueueBusy, QueueUnavailable
from dfq.lease import Lease
from dfq.policy import Policy, RetryPolicy
from dfq.record import Outcome, Record
from dfq.stores.s3 import S3Store
from dfq.testing import SeededChance
from tests.servers.misfortune import Fate, Plan

T = TypeVar("T")

WORKERS = 6
TASKS_EACH = 350
OPERATIONS = 10_000
#: More tries than any run of bad luck takes.
TRIES = 40
#: A lease that nobody knows of, because no answer came, is over so soon.
LEASE_SECONDS = 12.0

POLICY = Policy(
    lease_seconds=LEASE_SECONDS,
    heartbeat_seconds=LEASE_SECONDS / 3,
    max_attempts=50,
    retry=RetryPolicy(base_seconds=0.0),
)
SHARES: dict[Fate, float] = {
    "lost": 0.01,
    "late": 0.02,
    "lost_answer": 0.02,
    "cut_head": 0.01,
    "cut_body": 0.01,
    "delayed": 0.01,
    "repeated": 0.02,
    "second_answer": 0.01,
    "slow_down": 0.005,
    "server_error": 0.01,
    "conflict": 0.01,
}


class Claim(NamedTuple):
    """A lease that was handed out: when it was asked for, when it was there, and its fence."""

    asked: float
    given: float
    fence: int


@dataclass
class Notes:
    """What the verbs said."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    operations: Counter[str] = field(default_factory=Counter)
    pushed: set[str] = field(default_factory=set)
    claims: dict[str, list[Claim]] = field(default_factory=lambda: defaultdict(list))
    #: task_id -> the leases whose ack returned
    acked: dict[str, list[Lease]] = field(default_factory=lambda: defaultdict(list))
    #: The leases whose ack was refused.
    refused: list[Lease] = field(default_factory=list)
    failed: set[str] = field(default_factory=set)

    def count(self, verb: str, times: int = 1) -> None:
        with self.lock:
            self.operations[verb] += times

    def all_pushed(self) -> bool:
        with self.lock:
            return len(self.pushed) == WORKERS * TASKS_EACH


def insist(verb: Callable[[], T]) -> T:
    """Call until it gets through, as a worker does."""
    for _ in range(TRIES):
        try:
            return verb()
        except (QueueUnavailable, QueueBusy):
            continue
    raise AssertionError(f"it did not get through in {TRIES} tries")


def tasks_left(store: S3Store) -> bool:
    """Whether any task is not finished yet, in truth."""
    after: str | None = ""
    while after is not None:
        page = store.list("pending/", after)
        if any(entry.key.endswith("/task.json") for entry in page.entries):
            return True
        after = page.next
    return False


class Client:
    """One worker that also pushes, on a handle of its own."""

    def __init__(self, number: int, queue: S3Queue, direct: S3Store, notes: Notes) -> None:
        self._name = f"worker-{number}"
        self._direct = direct
        self._queue = queue
        self._notes = notes
        self._numbers = list(range(number * TASKS_EACH, (number + 1) * TASKS_EACH))

    def run(self) -> None:
        pause = threading.Event()
        # What is left in the end are leases that nobody knows of; they run out.
        for _ in range(2_000):
            self._push(25)
            if not self._work(10):
                if self._notes.all_pushed() and not tasks_left(self._direct):
                    return
                pause.wait(0.2)
        raise AssertionError("the queue was never worked off")

    def _push(self, count: int) -> None:
        numbers, self._numbers = self._numbers[:count], self._numbers[count:]
        if not numbers:
            return
        tasks = [
            # Some never succeed, and give up at the second try.
            self._queue.new_task(n, id=f"task-{n}", max_attempts=2 if n % 25 == 0 else None)
            for n in numbers
        ]
        pushed = insist(lambda: self._queue.push_many(tasks))
        self._notes.count("push", len(pushed))
        with self._notes.lock:
            self._notes.pushed |= {one.id for one in pushed}

    def _work(self, count: int) -> int:
        asked = SYSTEM_CLOCK.boot()
        leases = insist(lambda: self._queue.claim_many(count, self._name))
        given = SYSTEM_CLOCK.boot()
        self._notes.count("claim", len(leases))
        with self._notes.lock:
            for lease in leases:
                self._notes.claims[lease.task_id].append(Claim(asked, given, lease.fence))
        for lease, answer in zip(leases, self._renew(leases), strict=True):
            if isinstance(answer, LeaseLost):
                continue
            self._settle(lease)
        return len(leases)

    def _renew(self, leases: list[Lease]) -> list[Lease | DfqError]:
        self._notes.count("heartbeat", len(leases))
        return insist(lambda: self._queue.heartbeat_many(leases))

    def _settle(self, lease: Lease) -> None:
        number = lease.task.payload
        if number % 25 == 0 or (number % 7 == 0 and lease.attempt == 1):
            self._nack(lease)
        else:
            self._ack(lease)
            if number % 10 == 3:
                self._refused(lease)

    def _ack(self, lease: Lease) -> None:
        self._notes.count("ack")
        try:
            insist(lambda: self._queue.ack(lease, lease.lease_id))
        except LeaseLost:
            with self._notes.lock:
                self._notes.refused.append(lease)
        else:
            with self._notes.lock:
                self._notes.acked[lease.task_id].append(lease)

    def _nack(self, lease: Lease) -> None:
        self._notes.count("nack")
        try:
            outcome = insist(lambda: self._queue.nack(lease, "not this time", delay=0))
        except LeaseLost:
            return
        if outcome is Outcome.FAILED:
            with self._notes.lock:
                self._notes.failed.add(lease.task_id)
        else:
            self._refused(lease)

    def _refused(self, lease: Lease) -> None:
        """A lease that is settled settles nothing more."""
        self._notes.count("second ack")
        try:
            insist(lambda: self._queue.ack(lease, "a second time"))
        except LeaseLost:
            return
        raise AssertionError(f"{lease.task_id}: a lease was obeyed after its end")


def records_of(queue: S3Queue) -> dict[str, list[Record]]:
    """All tasks by their ids, whatever became of them."""
    found: dict[str, list[Record]] = defaultdict(list)
    for record in queue.list():
        found[record.task.id].append(record)
    return found


def fences_grow(claims: list[Claim]) -> bool:
    """Whether no fence came twice, and of two claims one after the other the later has more."""
    return all(
        one.fence != other.fence and (one.given > other.asked or one.fence < other.fence)
        for one, other in permutations(claims, 2)
    )


@pytest.mark.timeout(600)
def test_none_is_lost_and_none_is_completed_twice(bad_network):
    plan = Plan(SeededChance(11), SHARES, max_later_requests=30)
    network = bad_network("seaweedfs", plan)
    notes = Notes()
    handles = [
        S3Queue(network.through, policy=POLICY, certified=True, parallel=4) for _ in range(WORKERS)
    ]
    clients = [Client(number, queue, network.direct, notes) for number, queue in enumerate(handles)]
    with ThreadPoolExecutor(WORKERS) as pool:
        for done in [pool.submit(client.run) for client in clients]:
            done.result()
    network.proxy.deliver_all()
    assert notes.operations.total() >= OPERATIONS, notes.operations

    counts = network.proxy.counts
    assert not [fate for fate in SHARES if not counts.get(fate)], counts
    assert network.proxy.later_answers.get("PUT 412"), "no late write was beaten"
    assert "broken" not in counts

    truth = S3Queue(network.direct, policy=POLICY, certified=True)
    records = records_of(truth)
    assert notes.pushed == {f"task-{n}" for n in range(WORKERS * TASKS_EACH)}
    assert {task_id: len(found) for task_id, found in records.items()} == dict.fromkeys(
        notes.pushed, 1
    )
    for task_id, (record,) in records.items():
        acks = notes.acked.get(task_id, [])
        assert (record.state, len(acks)) in (("completed", 1), ("failed", 0)), (record, acks)
        if acks:
            assert record.lease is not None
            assert record.lease.lease_id == acks[0].lease_id == record.result
            fences = [claim.fence for claim in notes.claims[task_id]]
            assert record.lease.fence == acks[0].fence == max(fences)
    by_lease = {record.lease.lease_id for (record,) in records.values() if record.lease}
    assert not [lease for lease in notes.refused if lease.lease_id in by_lease]
    assert not [claims for claims in notes.claims.values() if not fences_grow(claims)]
    assert {task_id for task_id, (one,) in records.items() if one.state == "failed"} >= notes.failed
