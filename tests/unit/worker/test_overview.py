"""How far several workers are together."""

from __future__ import annotations

import threading

from dfq.errors import QueueUnavailable
from dfq.record import EVERYTHING, Filter
from dfq.testing import memory_queue
from dfq.worker.overview import Overview


def test_it_tells_how_far_the_queue_is_while_others_work():
    queue = memory_queue()
    for number in range(3):
        queue.push(number)
    queue.ack(queue.claim("w"))
    seen = []
    done = threading.Event()

    def note(now):
        seen.append((now.completed, now.remaining))
        if now.completed:
            done.set()

    with Overview(queue, EVERYTHING, note):
        queue.ack(queue.claim("w"))
        assert done.wait(20)
    assert seen[0] == (0, 2)
    assert seen[-1] == (1, 1)


def test_its_last_look_counts_only_what_the_workers_wanted():
    queue = memory_queue()
    queue.push(1, project="ours")
    queue.push(2, project="theirs")
    seen = []
    with Overview(queue, Filter(project="ours"), seen.append):
        queue.nack(queue.claim("w", filter=Filter(project="ours")), delay=0)
    assert (seen[0].remaining, seen[-1].remaining) == (2, 1)


def test_a_queue_that_can_not_be_seen_for_a_while_is_not_the_end(monkeypatch):
    queue = memory_queue()
    queue.push(1)
    seen = []
    with monkeypatch.context() as patch:

        def fail():
            raise QueueUnavailable("gone")

        patch.setattr(queue, "stats", fail)
        overview = Overview(queue, EVERYTHING, seen.append)
        overview.__enter__()
        assert seen == []
    overview.__exit__(None, None, None)
    assert [now.remaining for now in seen[-1:]] == [1]
