"""Results go into an index, before the ack."""

from __future__ import annotations

import itertools
import threading

import pytest

import dfq
from dfq import worker
from dfq.errors import InvalidRecord, NoIndex, QueueUnavailable
from dfq.testing import FakeClock, memory_queue
from dfq.worker import WorkerOptions
from dfq.worker.context import TaskContext
from dfq.worker.delivery import Delivery
from dfq.worker.results import Results
from dfq.worker.settlement import Settler
from tests.indexes import shard_of

_NUMBERS = itertools.count()


@pytest.fixture
def index():
    return dfq.Index.create(f"memory://results-{next(_NUMBERS)}", ["domain", "visits:integer"])


@pytest.fixture
def queue():
    with dfq.open(f"memory://results-{next(_NUMBERS)}") as opened:
        yield opened


def work(queue, index, handler, **options):
    options = WorkerOptions(drain=True, results_to=index.url, **options)
    return worker.run(queue, worker.functions(handler), options)


@pytest.mark.parametrize(
    ("result", "records"),
    [
        ({"domain": "a.example", "visits": 3}, {"a.example": "3"}),
        (
            [{"domain": "a.example"}, {"domain": "b.example", "visits": 7}],
            {"a.example": "", "b.example": "7"},
        ),
        ([], {}),
    ],
)
def test_a_result_is_in_the_index_and_in_the_queue(queue, index, result, records):
    queue.push(1, id="a")
    work(queue, index, lambda payload: result)
    assert queue.get("a").state == "completed"
    assert queue.get("a").result == result
    assert {one["domain"]: one["visits"] for one in index.scan()} == records


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (None, "NoneType"),
        (7, "int"),
        ({"domain": "a.example", "visit": 3}, "no column 'visit'"),
        ({"domain": "a.example", "visits": "many"}, "no integer"),
        ({"visits": 3}, "key 'domain' is empty"),
        ([{"domain": "a.example"}, 7], "not int"),
        ({"domain": "a.example", "updated_at": "now"}, "no datetime"),
    ],
)
def test_a_result_that_does_not_fit_fails_the_attempt(queue, index, result, said):
    queue.push(1, id="a", max_attempts=1)
    work(queue, index, lambda payload: result)
    record = queue.get("a")
    assert record.state == "failed"
    assert said in record.task.errors[-1].message
    assert list(index.scan()) == []


def test_a_result_may_have_a_column_that_was_added_while_the_worker_ran(queue, index):
    def grow_and_return(payload):
        with dfq.Index(index.url) as other:
            other.grow("city")
        return {"domain": "a.example", "city": "Bern"}

    queue.push(1, id="a")
    work(queue, index, grow_and_return)
    assert index.get("a.example")["city"] == "Bern"


def test_no_task_is_completed_before_its_records_are_put(queue, index, monkeypatch):
    states = []
    real = Results.put

    def put(self, rows):
        states.append(queue.get("a").state)
        if len(states) == 1:
            raise QueueUnavailable("the index is away")
        real(self, rows)

    monkeypatch.setattr(Results, "put", put)
    queue.push(1, id="a")
    work(queue, index, lambda payload: {"domain": "a.example"})
    assert states == ["leased", "leased"]
    assert queue.get("a").state == "completed"
    assert index.get("a.example") is not None


@pytest.fixture
def clock():
    return FakeClock()


class TwoWorkers:
    """Two leases on one task: the first ran out while its worker was away."""

    def __init__(self, clock, index):
        self.clock, self.queue = clock, memory_queue(clock=clock)
        self.settler = Settler(self.queue, 60, threading.Event(), Results(index.url))
        self.queue.push(1, id="a")

    def begin(self):
        lease = self.queue.claim("worker", lease_seconds=10)
        entry = worker.functions(print).find(lease.task)
        return Delivery(self.queue, lease, entry, timeout_seconds=None, lease_seconds=10)

    def first_and_second(self):
        first = self.begin()
        self.clock.advance(20)
        self.queue.sweep()
        return first, self.begin()


def test_a_worker_that_lost_its_lease_puts_nothing(clock, index):
    two = TwoWorkers(clock, index)
    first, second = two.first_and_second()
    assert two.settler.returned(first, {"domain": "a.example", "visits": 1}) == "lost"
    assert list(index.scan()) == []
    assert two.settler.returned(second, {"domain": "a.example", "visits": 2}) == "completed"
    assert two.settler.returned(first, {"domain": "a.example", "visits": 1}) == "lost"
    assert index.get("a.example")["visits"] == "2"
    assert index.plan().waiting == {shard_of("a.example"): 1}


def test_a_worker_away_between_renewing_and_putting_is_older_than_who_has_the_next_lease(
    clock, index, monkeypatch
):
    two = TwoWorkers(clock, index)
    first = two.begin()
    real, ends = TaskContext.heartbeat, []

    def heartbeat(self):
        monkeypatch.setattr(TaskContext, "heartbeat", real)
        real(self)
        clock.advance(20)
        two.queue.sweep()
        ends.append(two.settler.returned(two.begin(), {"domain": "a.example", "visits": 2}))

    monkeypatch.setattr(TaskContext, "heartbeat", heartbeat)
    assert two.settler.returned(first, {"domain": "a.example", "visits": 1}) == "lost"
    assert ends == ["completed"]
    assert index.plan().waiting == {shard_of("a.example"): 2}
    assert index.get("a.example")["visits"] == "2"


def test_a_worker_says_at_once_that_there_is_no_index(queue, tmp_path):
    options = WorkerOptions(results_to=str(tmp_path / "nothing"))
    with pytest.raises(NoIndex, match="dfq index create"):
        worker.run(queue, worker.functions(print), options)
    assert not (tmp_path / "nothing").exists()


def test_rows_are_made_once_so_that_a_second_write_is_the_same(index):
    results = Results(index.url)
    rows = results.rows({"domain": "a.example"})
    results.put(rows)
    results.put(rows)
    assert index.compile().shards[0].superseded == 1
    with pytest.raises(InvalidRecord):
        results.rows("text")
