"""wait and interrupt: an idle worker sleeps until there may be work."""

from __future__ import annotations

import threading

from tests.patience import patience

LONG = patience(60.0)


class Waiter:
    """A thread in queue.wait; ``answer()`` is what it returned."""

    def __init__(self, queue):
        self._answers = []
        self._thread = threading.Thread(
            target=lambda: self._answers.append(queue.wait(LONG)), daemon=True
        )
        self._thread.start()

    def ended_after(self, action):
        action()
        self._thread.join(0.01)
        return not self._thread.is_alive()

    def answer(self):
        self._thread.join(30)
        assert not self._thread.is_alive(), "wait did not return"
        return self._answers[0]


def settled(queue):
    """Claim until there is nothing, as a worker does before it waits."""
    while queue.claim("w"):
        pass
    return queue


def test_a_push_wakes_a_waiting_thread(queue):
    waiter = Waiter(settled(queue))
    queue.push(1)
    assert waiter.answer() is True
    assert queue.claim("w") is not None


def test_a_push_by_another_handle_wakes_a_waiting_thread(engine, queue):
    waiter = Waiter(settled(queue))
    engine.reopen().push(1)
    assert waiter.answer() is True
    assert queue.claim("w") is not None


def test_a_push_between_the_claim_and_the_wait_is_not_missed(engine, queue):
    settled(queue)
    engine.reopen().push(1)
    assert queue.wait(LONG) is True
    assert queue.claim("w") is not None


def test_a_task_given_back_wakes_a_waiting_thread(engine, queue):
    queue.push(1)
    lease = queue.claim("w")
    waiter = Waiter(settled(queue))
    engine.reopen().release(lease)
    assert waiter.answer() is True
    assert queue.claim("w") is not None


def test_resuming_wakes_a_waiting_thread(engine, queue):
    queue.push(1)
    queue.pause()
    waiter = Waiter(settled(queue))
    engine.reopen().resume()
    assert waiter.answer() is True
    assert queue.claim("w") is not None


def test_waiting_ends_when_the_time_is_over(queue):
    settled(queue)
    # Something may have stirred since; nothing stirs for ever.
    assert any(queue.wait(0.01) is False for _ in range(100))


def test_an_interrupt_wakes_every_waiting_thread(queue):
    settled(queue)
    waiters = [Waiter(queue) for _ in range(3)]
    for waiter in waiters:
        # A thread may come to wait only after an interrupt; one of these is for it.
        assert any(waiter.ended_after(queue.interrupt) for _ in range(3_000))
