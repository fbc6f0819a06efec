"""Bad days: the queue fails under a running worker."""

from __future__ import annotations

import threading

import pytest

from dfq.errors import DiskFull, LayoutTooNew, QueueBusy, QueueUnavailable
from dfq.worker import intake, settlement
from dfq.worker.backoff import Backoff


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    """The pauses of a bad spell, a hundred times shorter."""

    class Short(Backoff):
        def next_seconds(self):
            return super().next_seconds() / 100

    monkeypatch.setattr(intake, "Backoff", Short)
    monkeypatch.setattr(settlement, "Backoff", Short)


def failing(verb, errors, before_the_last=lambda: None):
    """``verb``, failing with each of these first."""
    pending = list(errors)

    def call(*args, **kwargs):
        if len(pending) == 1:
            before_the_last()
        if pending:
            raise pending.pop(0)
        return verb(*args, **kwargs)

    return call


@pytest.mark.parametrize("error", [DiskFull, QueueUnavailable, QueueBusy])
@pytest.mark.parametrize("verb", ["claim_many", "sweep", "wait"])
def test_a_queue_that_fails_is_reported_once_and_work_goes_on_when_it_is_back(
    queue, start, proxy, caplog, error, verb
):
    caplog.set_level("INFO", logger="dfq")
    times = 1 if verb == "sweep" else 3  # a sweep that failed comes again only a minute later
    errors = [error("no luck")] * times
    broken = failing(getattr(queue, verb), errors, lambda: queue.push(1, id="a"))
    worker = start(proxy(queue, **{verb: broken}), lambda payload: "done", max_tasks=1)
    assert worker.ended() == 0
    assert queue.get("a").result == "done"
    assert caplog.text.count("fails, trying on: no luck") == 1
    assert "is back" in caplog.text


@pytest.mark.parametrize("then", ["nothing", "another folder"])
def test_a_folder_that_is_gone_ends_the_worker_with_1_and_a_clear_message(
    queue, start, proxy, caplog, tmp_path, then
):
    folder = tmp_path / "q"
    folder.mkdir()
    claims = iter(range(99))

    def claim_many(*_args, **_kwargs):
        if next(claims) == 0:
            return []
        folder.rename(tmp_path / "elsewhere")
        if then == "another folder":
            folder.mkdir()
        raise QueueUnavailable(f"can't read {folder}")

    gone = proxy(queue, url=str(folder), claim_many=claim_many, wait=lambda seconds: False)
    assert start(gone, lambda payload: None).ended() == 1
    assert "folder is gone" in caplog.text
    assert str(folder) in caplog.text
    assert "Traceback" not in caplog.text


def test_a_folder_that_only_can_not_be_read_for_a_while_does_not_end_the_worker(
    queue, start, proxy, tmp_path
):
    errors = [QueueUnavailable("input/output error")] * 3
    claim_many = failing(queue.claim_many, errors)
    queue.push(1, id="a")
    broken = proxy(queue, url=str(tmp_path), claim_many=claim_many)
    assert start(broken, lambda payload: None, drain=True).ended() == 0
    assert queue.get("a").state == "completed"


def test_an_error_that_will_not_go_away_ends_the_worker_with_1(queue, start, proxy, caplog):
    broken = proxy(queue, claim_many=failing(queue.claim_many, [LayoutTooNew("layout 9")] * 99))
    assert start(broken, lambda payload: None).ended() == 1
    assert "layout 9" in caplog.text
    assert "Traceback" not in caplog.text


def test_once_does_not_wait_for_a_queue_that_fails(queue, start, proxy):
    queue.push(1)
    broken = proxy(queue, claim_many=failing(queue.claim_many, [DiskFull("full")]))
    assert start(broken, lambda payload: None, once=True).ended() == 1


def test_an_ack_that_fails_is_written_again_and_the_work_is_not(queue, start, proxy, caplog):
    calls = []
    queue.push(1, id="a")
    broken = proxy(queue, ack=failing(queue.ack, [DiskFull("full")] * 3))
    assert start(broken, calls.append, drain=True).ended() == 0
    assert (queue.get("a").state, len(calls)) == ("completed", 1)
    assert caplog.text.count("outcome not written yet, trying on: full") == 1


def test_a_worker_that_stops_does_not_try_for_ever_to_write_an_outcome(
    queue, start, proxy, caplog, happens
):
    tried = threading.Event()

    def ack(*_args):
        tried.set()
        raise DiskFull("full")

    queue.push(1, id="a")
    worker = start(proxy(queue, ack=ack), lambda payload: None)
    happens(tried)
    assert worker.stopped(at_once=True) == 0
    assert queue.get("a").state == "leased"
    assert "so it will be delivered again" in caplog.text


def test_a_stop_interrupts_the_pause_of_a_bad_spell(queue, start, proxy, monkeypatch, happens):
    monkeypatch.setattr(intake, "Backoff", lambda chance, **_: Backoff(chance, first_seconds=3600))
    failed = threading.Event()

    def claim_many(*_args, **_kwargs):
        failed.set()
        raise DiskFull("full")

    worker = start(proxy(queue, claim_many=claim_many), lambda payload: None)
    happens(failed)
    assert worker.stopped() == 0


def test_pauses_grow_to_a_bound_and_start_anew():
    from dfq.testing import SeededChance

    backoff = Backoff(SeededChance(), first_seconds=1, longest_seconds=8)
    pauses = [backoff.next_seconds() for _ in range(100)]
    ceilings = [1, 2, 4] + [8] * 97
    assert all(c / 2 <= p <= c for p, c in zip(pauses, ceilings, strict=True))
    backoff.reset()
    assert backoff.next_seconds() <= 1
