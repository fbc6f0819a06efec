"""A worker that has nothing to do: it waits, and says why."""

from __future__ import annotations

import threading


def test_a_paused_queue_hands_out_nothing_until_it_is_resumed(queue, start, proxy, signalled):
    queue.push(1, id="a")
    queue.pause("lunch")
    claim_many = signalled(queue.claim_many)
    worker = start(proxy(queue, claim_many=claim_many), lambda payload: None, drain=True)
    claim_many.wait_for_calls(2)
    assert queue.get("a").state == "ready"
    queue.resume()
    assert worker.ended() == 0


def test_an_idle_worker_does_nothing_but_wait(queue, start, proxy, signalled, happens):
    waiting, claims, sweeps = threading.Event(), signalled(queue.claim_many), []

    def wait(seconds):
        assert seconds == queue.policy.safety_poll_seconds
        waiting.set()
        return queue.wait(seconds)

    def sweep():
        sweeps.append(1)
        return queue.sweep()

    worker = start(proxy(queue, wait=wait, claim_many=claims, sweep=sweep), lambda payload: 1)
    happens(waiting)
    assert (claims.calls, len(sweeps)) == (1, 1)
    queue.push(1, id="a")
    claims.wait_for_calls(2)
    assert worker.stopped() == 0
    assert queue.get("a").result == 1
    assert len(sweeps) == 1


def test_tasks_of_others_do_not_make_an_idle_worker_spin(queue, start, proxy, signalled, happens):
    paused, claims = threading.Event(), signalled(queue.claim_many)
    asked = []

    class Chance:
        bits = queue.chance.bits

        def uniform(self, low, high):
            asked.append(high)
            if high >= 1.0:
                paused.set()
            return high

    eager = proxy(queue, wait=lambda seconds: True, claim_many=claims, chance=Chance())
    worker = start(eager, lambda payload: 1)
    happens(paused)
    assert claims.calls <= 12
    assert worker.stopped() == 0


def test_an_idle_worker_says_once_that_the_tasks_there_are_not_for_it(
    queue, start, proxy, signalled, caplog
):
    queue.push(1, id="a", name="enrich")
    claims = signalled(queue.claim_many)
    worker = start(proxy(queue, claim_many=claims), lambda payload: 1)
    claims.wait_for_calls(1)
    queue.push(2, id="b", name="enrich")
    claims.wait_for_calls(2)
    assert worker.stopped() == 0
    assert caplog.text.count("ready, but not for this worker: of a, its name is 'enrich'") == 1


def test_an_idle_worker_says_that_the_queue_is_paused(queue, start, caplog):
    queue.push(1, id="a")
    queue.pause()
    assert start(queue, lambda payload: 1, once=True).ended() == 3
    assert "the queue is paused" in caplog.text


def test_an_idle_worker_says_nothing_when_there_is_nothing(queue, start, caplog):
    queue.push(1, delay=60)
    assert start(queue, lambda payload: 1, once=True).ended() == 3
    assert [r for r in caplog.records if r.levelname == "WARNING"] == []
