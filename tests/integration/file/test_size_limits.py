"""What goes in must stay readable: a task.json that would be too large is refused at the push,
and no history makes it so later."""

from __future__ import annotations

import pytest

from dfq import InvalidTask
from dfq.record import Outcome

#: Four bytes each, and six in JSON if it is escaped.
LONG_ERRORS = {"four bytes": "\N{PILE OF POO}" * 4_000, "escaped": "\x01" * 4_000}
long_errors = pytest.mark.parametrize("error", LONG_ERRORS.values(), ids=LONG_ERRORS.keys())


def names(count):
    return [f"{n:05d}" + "k" * 190 for n in range(count)]


def test_a_task_that_would_be_too_large_to_read_is_refused_at_the_push(folder, work_off):
    queue = folder.open()
    with pytest.raises(InvalidTask, match=r"depend|large|bytes") as error:
        queue.push("x" * 1_000_000, id="deps", depends_on=names(8_000))
    assert len(str(error.value)) < 500, "the message does not repeat it all"
    assert "deps" in str(error.value)
    assert queue.get("deps") is None
    assert folder.rubbish() == []
    queue.push(1, id="neighbour")
    assert work_off(queue) == ["neighbour"]
    assert queue.stats().quarantined == 0


def test_a_lot_with_a_task_that_is_too_large_is_refused_whole(folder):
    queue = folder.open()
    lot = [queue.new_task(n, id=f"t{n}") for n in range(3)]
    with pytest.raises(InvalidTask, match="deps"):
        large = queue.new_task("x" * 1_000_000, id="deps", depends_on=names(8_000))
        queue.push_many([*lot, large])
    assert queue.stats().pending == 0
    assert folder.rubbish() == []


@long_errors
def test_a_history_of_long_errors_never_makes_a_task_unreadable(folder, error):
    queue = folder.open(max_payload_bytes=250_000, max_result_bytes=250_000)
    queue.push("x" * 249_000, id="big", max_attempts=100)
    for attempt in range(1, 31):
        lease = queue.claim()
        assert lease is not None, f"it is lost before delivery {attempt}"
        assert queue.nack(lease, error, delay=0) is Outcome.RETRY
    record = queue.get("big")
    assert (record.state, record.task.attempts, len(record.task.payload)) == ("ready", 30, 249_000)
    assert record.task.errors[-1].attempt == 30
    assert folder.open().claim().attempt == 31
    assert queue.stats().quarantined == 0


def accepts(queue, count):
    try:
        queue.push("x" * 240_000, id="most", depends_on=names(count))
    except InvalidTask:
        return False
    queue.purge()
    return True


@long_errors
def test_the_largest_task_that_is_accepted_survives_its_history(folder, clock, error):
    queue = folder.open(max_payload_bytes=250_000, max_result_bytes=250_000)
    fits, too_many = 0, 8_000
    assert accepts(queue, fits)
    assert not accepts(queue, too_many)
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        if accepts(queue, middle):
            fits = middle
        else:
            too_many = middle
    queue.push("x" * 240_000, id="most", depends_on=names(fits))
    for _ in range(25):
        queue.bury("most", error)
        assert queue.get("most").state == "failed"
        queue.requeue("most")
        assert queue.get("most").state == "blocked"
    for _ in range(3):
        assert folder.open().claim() is None
        clock.advance(31)
    assert len(queue.get("most").task.depends_on) == fits
    assert queue.stats().quarantined == 0
