"""A process is stopped between its check and its act: whoever comes by has to wait for it.

Each test is about one place where a lock is taken. Were it not, the other one would be through
before the stopped process goes on, and the two would do one thing twice, or undo each other.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from dfq import DfqError, LeaseLost, Policy, WrongState
from dfq.engines.file import FileQueue

pytestmark = [pytest.mark.crash]

SECONDS = 60


class Meanwhile:
    """Something that another does while a process stands still."""

    def __init__(self, act: Callable[[], object]) -> None:
        self.outcome: object = None
        self.error: DfqError | None = None
        self._act = act
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        # A lock is waited for with growing pauses that nobody is told of. Whoever does not
        # have to wait is through long before this; and if not, the test is no less right.
        self._thread.join(timeout=1.0)

    def _run(self) -> None:
        try:
            self.outcome = self._act()
        except DfqError as error:
            self.error = error

    def end(self) -> Meanwhile:
        self._thread.join(timeout=SECONDS)
        assert not self._thread.is_alive()
        return self


def test_an_ack_keeps_others_from_taking_over(root: Path, stop_at, fresh, later) -> None:
    with stop_at(root, "ack", "renameat", '"result.json"', fresh) as acker:
        queue = FileQueue(root, clock=later)
        taker = Meanwhile(lambda: queue.claim("taker"))
        assert acker.go_on() == {"done": 1}
        assert taker.end().outcome is None, "one task, two holders"
    assert queue.get("target").result == "slow"


def test_a_lock_counts_for_those_who_knew_the_lock_file_that_was_deleted(
    root: Path, stop_at, fresh, later
) -> None:
    queues = []

    def without_its_lock_file() -> None:
        fresh()
        queues[:] = [FileQueue(root, clock=later)]
        queues[0].sweep()
        (root / "lock").unlink()

    with stop_at(root, "ack", "renameat", '"result.json"', without_its_lock_file) as acker:
        taker = Meanwhile(lambda: queues[0].claim("taker"))
        assert acker.go_on() == {"done": 1}
        assert taker.end().outcome is None, "one task, two holders"


def test_a_nack_removes_nobody_elses_lease(root: Path, stop_at, fresh, later) -> None:
    with stop_at(root, "nack", "fsync", str(root / "tmp"), fresh) as nacker:
        queue = FileQueue(root, clock=later)
        taker = Meanwhile(lambda: queue.claim("taker"))
        assert nacker.go_on() == {"done": "RETRY"}
        taken = taker.end().outcome
    assert [error.message for error in taken.task.errors] == ["slow"]
    queue.ack(taken)


def test_a_claim_that_gives_up_an_expired_task_is_not_overtaken(
    root: Path, stop_at, fresh, later
) -> None:
    def old() -> None:
        fresh(ttl=0.001)

    with stop_at(root, "claim", "fsync", str(root / "tmp"), old) as claimer:
        queue = FileQueue(root, clock=later)
        taker = Meanwhile(lambda: queue.claim("taker"))
        assert claimer.go_on() == {"done": None}
        assert taker.end().outcome is None
    record = queue.get("target")
    assert record.state == "failed"
    assert [error.kind for error in record.task.errors] == ["expired"]


def test_a_claim_that_takes_its_lease_back_is_not_overtaken(
    root: Path, stop_at, fresh, later
) -> None:
    def early() -> None:
        fresh(delay=600)

    with stop_at(root, "claim", "fstat", "/target/lease.json", early) as claimer:
        (lease,) = root.glob("pending/??/target/lease.json")
        os.utime(lease, (0, 0))
        queue = FileQueue(root, clock=later)
        taker = Meanwhile(lambda: queue.claim("taker"))
        assert claimer.go_on() == {"done": None}
        taken = taker.end().outcome
    queue.ack(taken)


def test_a_requeue_removes_no_lease_of_the_next_round(root: Path, stop_at, fresh) -> None:
    def failed() -> None:
        fresh(max_attempts=1)
        queue = FileQueue(root)
        queue.nack(queue.claim("before"), "no")

    def requeue_and_claim() -> object:
        with suppress(WrongState):
            queue.requeue("target")
        return queue.claim("taker")

    with stop_at(root, "requeue", "fsync", str(root / "tmp"), failed) as requeuer:
        queue = FileQueue(root)
        other = Meanwhile(requeue_and_claim)
        assert requeuer.go_on() == {"done": None}
        taken = other.end().outcome
    queue.ack(taken)


@pytest.mark.parametrize(
    ("verb", "call", "text", "state"),
    [("cancel", "fsync", "/tmp/", "failed"), ("purge", "openat", '"lease.json"', None)],
)
def test_what_is_cancelled_or_purged_is_not_acked_at_the_same_time(
    root: Path, stop_at, fresh, verb: str, call: str, text: str, state: str | None
) -> None:
    held = []

    def claimed() -> None:
        fresh()
        held[:] = [FileQueue(root)]
        held.append(held[0].claim("holder"))

    where = str(root) + text if text.startswith("/") else text
    with stop_at(root, verb, call, where, claimed) as stopped:
        queue, lease = held
        holder = Meanwhile(lambda: queue.ack(lease, "done"))
        assert "done" in stopped.go_on()
        assert isinstance(holder.end().error, LeaseLost)
    record = queue.get("target")
    assert (record and record.state) == state


def test_a_push_that_looked_for_its_id_is_not_overtaken_by_a_task_that_moves(
    root: Path, stop_at, fresh
) -> None:
    def failed() -> None:
        fresh(max_attempts=1)
        queue = FileQueue(root)
        queue.push(1, id="wanted", max_attempts=1, priority="high")
        queue.nack(queue.claim("before"), "no")

    def finish() -> None:
        queue.requeue("wanted")
        lease = queue.claim("other")
        assert lease.task_id == "wanted"
        queue.ack(lease)

    with stop_at(root, "push", "newfstatat", '"completed/', failed) as pusher:
        queue = FileQueue(root)
        other = Meanwhile(finish)
        assert pusher.go_on() == {"error": "DuplicateTask"}
        assert other.end().error is None
    assert len(list(root.glob("*/??/wanted"))) == 1


def test_two_pushes_do_not_close_a_circle_together(root: Path, stop_at, fresh) -> None:
    with stop_at(root, "push_linked", "openat2", '"failed/', fresh) as pusher:
        queue = FileQueue(root)
        other = Meanwhile(lambda: queue.push(2, id="b", depends_on=["a"]))
        assert pusher.go_on() == {"done": "a"}
        assert type(other.end().error).__name__ == "DependencyCycle"
    assert queue.get("b") is None


def test_two_first_uses_do_not_take_each_others_boot_count(root: Path, stop_at, fresh) -> None:
    with stop_at(root, "open", "openat", '"tmp/boot.json"', fresh) as opener:
        other = Meanwhile(lambda: FileQueue(root / "new").push(2, id="second"))
        assert opener.go_on() == {"done": "first"}
        assert other.end().error is None


ARCHIVING = Policy(finished="archive", finished_after_seconds=0)


@pytest.fixture
def finished(root: Path, fresh) -> Callable[[], None]:
    """A queue with one completed task."""

    def make() -> None:
        fresh()
        queue = FileQueue(root)
        queue.ack(queue.claim("before"))

    return make


def test_two_sweepers_do_not_archive_a_task_twice(root: Path, stop_at, finished) -> None:
    with stop_at(root, "archive", "openat", "O_APPEND", finished) as sweeper:
        other = Meanwhile(lambda: FileQueue(root, policy=ARCHIVING).sweep())
        assert sweeper.go_on() == {"done": 1}
        assert other.end().outcome.archived == 0
    (day,) = root.glob("completed/archive/*.usv")
    assert len(day.read_bytes().splitlines()) == 1


def test_a_purge_of_the_archive_does_not_cut_into_a_sweep(root: Path, stop_at, finished) -> None:
    with stop_at(root, "archive", "openat", "O_APPEND", finished) as sweeper:
        other = Meanwhile(lambda: FileQueue(root).core.purge_archive(None))
        assert sweeper.go_on() == {"done": 1}
        assert other.end().outcome == 1
