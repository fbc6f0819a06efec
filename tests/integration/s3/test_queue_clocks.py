"""Workers whose clocks are a day off, on a server that checks the dates of requests."""

from __future__ import annotations

import threading

import pytest

from dfq.errors import LeaseLost
from dfq.policy import Policy, RetryPolicy

LEASE_SECONDS = 2.0
POLICY = Policy(
    lease_seconds=LEASE_SECONDS, heartbeat_seconds=0.5, retry=RetryPolicy(base_seconds=0.0)
)
DAY = 86_400.0
#: Claims so far apart, and so many at most, until one must have found something.
PAUSE_SECONDS = 0.1
CLAIMS = 600

by_a_day = pytest.mark.parametrize("first_off", [-DAY, 0.0, DAY], ids=["behind", "right", "ahead"])
other_by_a_day = pytest.mark.parametrize(
    "second_off", [-DAY, 0.0, DAY], ids=["behind", "right", "ahead"]
)


@by_a_day
@other_by_a_day
def test_a_lease_is_taken_over_when_it_is_due_and_not_before(
    opened, trusted_url, off_clock, first_off, second_off
):
    first = opened(trusted_url, policy=POLICY, clock=off_clock(first_off))
    second = opened(trusted_url, policy=POLICY, clock=off_clock(second_off))
    first.push("work", id="t")
    before = first.clock.boot()
    held = first.claim("first")
    pause = threading.Event()
    for _ in range(CLAIMS):
        taken = second.claim("second")
        if taken is not None:
            break
        pause.wait(PAUSE_SECONDS)
    assert taken is not None, "it was never taken over"
    assert second.clock.boot() - before >= LEASE_SECONDS
    assert (taken.task_id, taken.fence) == ("t", held.fence + 1)
    with pytest.raises(LeaseLost):
        first.ack(held, "too late")
    second.ack(taken, "done")
    assert first.get("t").result == "done"


@pytest.mark.parametrize("off", [-DAY, DAY], ids=["behind", "ahead"])
def test_heartbeats_keep_a_lease_whatever_the_clocks_say(opened, trusted_url, off_clock, off):
    holder = opened(trusted_url, policy=POLICY, clock=off_clock(off))
    other = opened(trusted_url, policy=POLICY, clock=off_clock(-off))
    holder.push("work", id="t")
    lease = holder.claim("holder")
    pause = threading.Event()
    until = holder.clock.boot() + 3 * LEASE_SECONDS
    while holder.clock.boot() < until:
        assert other.claim("other") is None
        lease = holder.heartbeat(lease)
        pause.wait(PAUSE_SECONDS)
    holder.ack(lease, "done")
    assert other.get("t").lease.worker_id == "holder"


@pytest.mark.parametrize("off", [-DAY, DAY], ids=["behind", "ahead"])
def test_delays_and_times_to_live_are_told_by_the_store(opened, trusted_url, off_clock, off):
    queue = opened(trusted_url, policy=POLICY, clock=off_clock(off))
    queue.push("later", id="later", delay=3600)
    queue.push("short", id="short", ttl=3600)
    queue.push("now", id="now")
    taken = {lease.task_id for lease in opened(trusted_url, policy=POLICY).claim_many(5)}
    assert taken == {"short", "now"}
    assert abs(queue.get("now").task.created_at - opened(trusted_url).clock.wall()) < 3600
