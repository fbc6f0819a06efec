"""Several threads wait on one queue object: none sleeps on while there is something for it,
and no news wake nobody."""

from __future__ import annotations

import threading

import pytest

from dfq import Filter
from tests.patience import patience

#: A wait that answers False slept through all of it.
LONG = patience(15.0)


@pytest.fixture
def queue(folder):
    """Empty, and watching."""
    queue = folder.open()
    for _ in range(3):
        assert queue.claim() is None
        queue.wait(0.0)
    assert queue.core.is_watched
    return queue


@pytest.fixture
def waiters(queue, asleep):
    """Start so many threads that wait; ``answers()`` is what the waits returned."""

    class Waiters:
        def __init__(self):
            self._threads, self._answers = [], []

        def start(self, count):
            self._threads = [threading.Thread(target=self._wait) for _ in range(count)]
            for thread in self._threads:
                thread.start()
            for thread in self._threads:
                asleep(thread.native_id)

        def _wait(self):
            self._answers.append(queue.wait(LONG))

        def answers(self):
            for thread in self._threads:
                thread.join()
            answers, self._answers = self._answers, []
            return answers

    made = Waiters()
    yield made
    made.answers()


def test_an_interrupt_wakes_every_thread_that_waits(queue, waiters):
    for _ in range(10):
        waiters.start(4)
        queue.interrupt()
        assert waiters.answers() == [True] * 4


def test_closing_wakes_every_thread_that_waits(queue, waiters):
    waiters.start(4)
    queue.close()
    assert waiters.answers() == [True] * 4


def test_an_interrupt_does_not_leave_later_waits_without_sleep(queue, waiters):
    waiters.start(2)
    queue.interrupt()
    waiters.answers()
    assert any(queue.wait(0.01) is False for _ in range(100))


def test_a_ready_task_left_behind_wakes_a_thread_that_waits(folder, queue, waiters):
    done = []
    got = threading.Event()

    def work():
        while len(done) < 40:
            lease = queue.claim()
            if lease is not None:
                done.append(queue.ack(lease))
            elif not queue.wait(LONG):
                return
        got.set()
        queue.interrupt()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    other = folder.open()
    for _ in range(20):
        other.push_many([other.new_task(n) for n in range(2)])
    for thread in threads:
        thread.join()
    assert got.is_set()
    assert queue.stats().completed == 40


def test_a_ready_task_left_behind_is_worth_a_claim_to_another_thread(folder, queue):
    other = folder.open()
    other.push_many([other.new_task(n) for n in range(2)])
    # This takes in the news of both, and one of them.
    assert queue.claim() is not None
    assert queue.wait(LONG) is True
    assert queue.claim() is not None


def test_a_claim_that_took_in_no_news_wakes_nobody(folder, queue, asleep):
    folder.open().push(1, project="theirs")
    ours = Filter(project="ours")
    for _ in range(3):
        assert queue.claim(filter=ours) is None
        queue.wait(0.0)
    answers = []
    thread = threading.Thread(target=lambda: answers.append(queue.wait(3.0)))
    thread.start()
    asleep(thread.native_id)
    # Else two threads with nothing to do would wake each other for ever.
    assert queue.claim(filter=ours) is None
    thread.join()
    assert answers == [False]
