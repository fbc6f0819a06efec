"""A worker whose queue can't be opened yet."""

from __future__ import annotations

import os
import signal

import pytest

from dfq.errors import InvalidPolicy, QueueUnavailable, StoreBusy, StoreNotSafe, StoreRefused
from dfq.testing import SeededChance, memory_queue
from dfq.worker.starting import open_patiently


def opener(*errors):
    """Opens a queue after these errors."""
    left = list(errors)

    def open_queue():
        if left:
            raise left.pop(0)
        return memory_queue()

    return open_queue


def test_a_queue_that_is_there_is_opened_without_a_word(caplog):
    pauses = []
    queue = open_patiently(opener(), pause=pauses.append)
    assert queue.url.startswith("memory:")
    assert (pauses, caplog.text) == ([], "")


def test_a_store_that_is_down_is_told_once_and_waited_for_longer_and_longer(caplog):
    caplog.set_level("INFO", logger="dfq")
    pauses = []
    errors = [QueueUnavailable("start the store"), StoreBusy("later")] * 10
    queue = open_patiently(opener(*errors), chance=SeededChance(1), pause=pauses.append)
    assert queue is not None
    assert caplog.text.count("trying on: start the store") == 1
    assert caplog.text.count("can be opened now") == 1
    assert len(pauses) == len(errors)
    assert pauses[0] <= 0.5 < 20 < pauses[-1] <= 60


@pytest.mark.parametrize(
    "error",
    [StoreRefused("secret"), StoreNotSafe("s3://b", ["two winners"]), InvalidPolicy("policy")],
)
def test_what_waiting_does_not_mend_is_told_at_once(error):
    pauses = []
    with pytest.raises(type(error)):
        open_patiently(opener(QueueUnavailable("down"), error), pause=pauses.append)
    assert len(pauses) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_wait_at_once_and_handlers_are_as_before(number):
    before = signal.getsignal(number)

    def pause(seconds):
        os.kill(os.getpid(), number)

    assert open_patiently(opener(*[QueueUnavailable("down")] * 3), pause=pause) is None
    assert signal.getsignal(number) is before


def test_a_service_manager_is_asked_for_more_time(monkeypatch, tmp_path):
    import socket

    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(address)
        monkeypatch.setenv("NOTIFY_SOCKET", address)
        open_patiently(opener(QueueUnavailable("down")), pause=lambda seconds: None)
        told = manager.recv(4096).decode()
    assert "STATUS=waits for the queue: down" in told
    assert "EXTEND_TIMEOUT_USEC=" in told
    assert os.environ["NOTIFY_SOCKET"] == address
