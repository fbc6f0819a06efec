"""Signals as messages."""

from __future__ import annotations

import os
import signal
import threading
from queue import SimpleQueue

import pytest

from dfq.worker.signals import STOPPING, StopSignals
from tests.patience import patience

LONG = patience(20.0)


def to_another_thread(number):
    """The main thread's wait is not interrupted by this."""
    threading.Thread(
        target=lambda: signal.pthread_kill(threading.get_ident(), number), daemon=True
    ).start()


def to_the_process(number):
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("send", [to_another_thread, to_the_process])
@pytest.mark.parametrize("number", STOPPING)
def test_a_signal_is_heard_by_whoever_waits_in_the_main_thread(number, send):
    inbox = SimpleQueue()
    with StopSignals(inbox.put, lambda: inbox.put(None)):
        send(number)
        while (message := inbox.get(timeout=LONG)) is None:
            pass
    assert message == number


def test_all_is_as_it_was_before():
    before = [signal.getsignal(number) for number in STOPPING]
    handles = os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else []
    threads = threading.active_count()
    with StopSignals(lambda number: None, lambda: None):
        assert [signal.getsignal(number) for number in STOPPING] != before
    assert [signal.getsignal(number) for number in STOPPING] == before
    assert signal.set_wakeup_fd(-1) == -1
    assert threading.active_count() == threads
    assert len(os.listdir("/proc/self/fd") if handles else []) == len(handles)


def test_outside_the_main_thread_it_does_nothing():
    before = [signal.getsignal(number) for number in STOPPING]
    seen = []

    def run():
        with StopSignals(lambda number: None, lambda: None):
            seen.extend(signal.getsignal(number) for number in STOPPING)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(LONG)
    assert seen == before


def test_a_process_that_a_handler_forked_does_not_keep_it_from_ending():
    read_end, write_end = os.pipe()
    with StopSignals(lambda number: None, lambda: None):
        child = os.fork()
        if child == 0:
            os.close(write_end)
            os.read(read_end, 1)
            os._exit(0)
    os.close(write_end)
    os.waitpid(child, 0)
    os.close(read_end)
    assert "dfq-signals" not in {thread.name for thread in threading.enumerate()}
