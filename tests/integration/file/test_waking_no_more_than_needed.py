"""News that one thread took in are not lost to the others, and no news wake nobody."""

from __future__ import annotations

import threading

import pytest

from dfq import Filter

#: A wait that answers False slept through all of it.
LONG = 15.0


@pytest.fixture
def queue(folder):
    """Empty, and watching."""
    queue = folder.open()
    for _ in range(3):
        assert queue.claim() is None
        queue.wait(0.0)
    assert queue.core.is_watched
    return queue


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
