"""Fences, heartbeats and silence: only the newest lease is obeyed."""

from __future__ import annotations

import pytest

from dfq import AlreadyCompleted, LeaseLost, LeaseTaken

VERBS = ["ack", "nack", "release", "bury", "heartbeat", "save_state"]


def test_a_silent_holder_loses_its_task_when_the_lease_is_over(engine, clock):
    queue = engine.open_queue(lease_seconds=60)
    queue.push(1, id="a")
    first = queue.claim("one")
    clock.advance(59)
    assert queue.claim("two") is None
    clock.advance(2)
    second = queue.claim("two")
    assert second.task_id == "a"
    assert second.fence > first.fence
    assert second.attempt == 2
    assert second.lease_id != first.lease_id


def test_a_crash_is_in_the_history(engine, clock):
    queue = engine.open_queue(lease_seconds=60)
    queue.push(1, id="a")
    lease = queue.claim("doomed")
    clock.advance(61)
    (error,) = queue.claim("next").task.errors
    assert (error.kind, error.worker_id) == ("crash", "doomed")
    assert (error.attempt, error.fence) == (1, lease.fence)
    assert error.message


def test_a_task_that_kills_its_workers_ends_in_failed(engine, clock):
    queue = engine.open_queue(lease_seconds=60)
    queue.push(1, id="killer", max_attempts=3)
    for attempt in (1, 2, 3):
        assert queue.claim("w").attempt == attempt
        clock.advance(61)
    assert queue.claim("w") is None
    queue.sweep()
    record = queue.get("killer")
    assert (record.state, record.task.attempts) == ("failed", 3)
    assert [error.kind for error in record.task.errors] == ["crash"] * 3


@pytest.mark.parametrize("verb", VERBS)
def test_an_older_lease_is_refused_by_every_verb_and_changes_nothing(engine, clock, settle, verb):
    queue = engine.open_queue(lease_seconds=60)
    queue.push(1, id="a")
    old = queue.claim("old")
    clock.advance(61)
    new = queue.claim("new")
    before = queue.get("a")
    with pytest.raises(LeaseTaken, match="new"):
        settle(verb, queue, old)
    assert queue.get("a") == before
    assert queue.load_state("a") is None
    queue.ack(new, "done")
    assert queue.get("a").result == "done"


def test_an_older_lease_learns_that_somebody_else_completed_the_task(engine, clock):
    queue = engine.open_queue(lease_seconds=60)
    queue.push(1, id="a")
    old = queue.claim("old")
    clock.advance(61)
    queue.ack(queue.claim("new"), "done")
    with pytest.raises(AlreadyCompleted, match="new"):
        queue.ack(old, "me too")
    assert queue.get("a").result == "done"
    assert queue.get("a").lease.worker_id == "new"


def test_the_same_worker_name_does_not_revive_an_older_lease(engine, clock):
    queue = engine.open_queue(lease_seconds=60)
    queue.push(1, id="a")
    old = queue.claim("twin")
    clock.advance(61)
    queue.claim("twin")
    with pytest.raises(LeaseTaken):
        queue.ack(old)


def test_a_heartbeat_keeps_the_lease(engine, clock):
    queue = engine.open_queue(lease_seconds=60)
    queue.push(1, id="a")
    lease = queue.claim("w")
    for _ in range(5):
        clock.advance(50)
        renewed = queue.heartbeat(lease)
        assert renewed.fence == lease.fence
        assert renewed.acquired_at == lease.acquired_at
        assert renewed.heartbeat_at == pytest.approx(clock.wall(), abs=0.01)
        assert renewed.expires_at == pytest.approx(clock.wall() + 60, abs=0.01)
        assert queue.claim("other") is None
    (held,) = queue.leases()
    assert held.heartbeat_at == pytest.approx(clock.wall(), abs=0.01)
    queue.ack(lease, "by the lease as it was first")
    assert queue.get("a").state == "completed"


def test_a_renewed_lease_can_settle_the_task(queue):
    queue.push(1, id="a")
    queue.ack(queue.heartbeat(queue.heartbeat(queue.claim("w"))))
    assert queue.get("a").state == "completed"


def test_a_heartbeat_can_ask_for_more_or_less_time(engine, clock):
    queue = engine.open_queue(lease_seconds=60)
    queue.push(1, id="a")
    lease = queue.heartbeat(queue.claim("w"), lease_seconds=600)
    clock.advance(500)
    assert queue.claim("other") is None
    queue.heartbeat(lease, lease_seconds=10)
    clock.advance(11)
    assert queue.claim("other").task_id == "a"


def test_a_claim_can_ask_for_its_own_lease_time(engine, clock):
    queue = engine.open_queue(lease_seconds=600)
    queue.push(1, id="a")
    lease = queue.claim("w", lease_seconds=5)
    assert lease.expires_at == pytest.approx(clock.wall() + 5, abs=0.01)
    clock.advance(6)
    assert queue.claim("other").task_id == "a"


@pytest.mark.parametrize("jump", [86_400, -86_400, -1_700_000_000])
def test_a_jump_of_the_wall_clock_steals_no_lease(engine, clock, jump):
    queue = engine.open_queue(lease_seconds=60)
    queue.push(1, id="a")
    lease = queue.claim("w")
    clock.jump_wall(jump)
    assert queue.claim("thief") is None
    assert engine.reopen().claim("thief") is None
    queue.ack(queue.heartbeat(lease), "mine")
    assert queue.get("a").result == "mine"


@pytest.mark.parametrize("jump", [86_400, -86_400])
def test_a_jump_of_the_wall_clock_keeps_no_dead_lease_alive(engine, clock, jump):
    queue = engine.open_queue(lease_seconds=60)
    queue.push(1, id="a")
    queue.claim("w")
    clock.jump_wall(jump)
    clock.advance(61)
    assert queue.claim("next").attempt == 2


def test_fences_only_grow_whatever_ends_a_lease(engine, clock):
    queue = engine.open_queue(lease_seconds=60, max_attempts=100)
    queue.push(1, id="a")
    fences = []

    def claim():
        # Another handle each time: the fence is the queue's memory, not the handle's.
        lease = engine.reopen().claim("w")
        fences.append(lease.fence)
        return lease

    queue.nack(claim(), delay=0)
    queue.release(claim())
    claim()
    clock.advance(61)
    queue.bury(claim())
    queue.requeue("a")
    claim()
    queue.cancel("a")
    queue.requeue("a")
    queue.nack(claim(), delay=0)
    queue.ack(claim())
    assert fences == sorted(set(fences))
    assert len(fences) == 7
    assert queue.get("a").lease.fence == fences[-1]


def test_a_lease_from_before_a_requeue_is_refused(queue):
    queue.push(1, id="a", max_attempts=1)
    old = queue.claim("old")
    queue.nack(old)
    queue.requeue("a")
    new = queue.claim("new")
    assert new.attempt == 1
    assert new.fence > old.fence
    with pytest.raises(LeaseTaken):
        queue.ack(old)
    queue.ack(new)


def test_an_ack_that_comes_late_is_obeyed_or_refused_but_never_half_done(engine, clock):
    """Nobody has taken the task over yet: the lease is over, but still the newest."""
    queue = engine.open_queue(lease_seconds=60)
    queue.push(1, id="a")
    lease = queue.claim("slow")
    clock.advance(61)
    try:
        queue.ack(lease, "late")
    except LeaseLost:
        assert queue.claim("next").attempt == 2
    else:
        assert queue.get("a").result == "late"
        assert queue.claim("next") is None


def test_sweeping_takes_back_what_the_silent_held(engine, clock):
    queue = engine.open_queue(lease_seconds=60)
    queue.push(1, id="again")
    queue.push(1, id="last", max_attempts=1)
    queue.claim_many(2, "w")
    assert queue.sweep().expired_leases == 0
    clock.advance(61)
    report = queue.sweep()
    assert (report.expired_leases, report.failed) == (2, 1)
    assert queue.get("again").state == "ready"
    assert queue.get("last").state == "failed"
    assert queue.leases() == []


def test_after_a_sweep_the_old_lease_is_not_held(engine, clock, settle):
    queue = engine.open_queue(lease_seconds=60)
    queue.push(1, id="a")
    lease = queue.claim("w")
    clock.advance(61)
    queue.sweep()
    before = queue.get("a")
    for verb in VERBS:
        with pytest.raises(LeaseLost):
            settle(verb, queue, lease)
    assert queue.get("a") == before


def test_leases_says_who_holds_what(queue):
    for i in range(3):
        queue.push(i, id=f"t{i}")
    first = queue.claim("ann")
    second, third = queue.claim_many(2, "bob")
    held = {lease.task_id: lease for lease in queue.leases()}
    assert held.keys() == {"t0", "t1", "t2"}
    assert held[first.task_id].worker_id == "ann"
    assert held[second.task_id].lease_id == second.lease_id
    queue.ack(third)
    queue.release(second)
    assert [lease.task_id for lease in queue.leases()] == [first.task_id]
    assert queue.get(first.task_id).lease.worker_id == "ann"


def test_a_lease_outlives_the_handle_it_was_taken_with(engine):
    first = engine.open_queue()
    first.push(1, id="a")
    lease = first.claim("w")
    first.close()
    second = engine.reopen()
    assert second.get("a").state == "leased"
    second.ack(lease)
    assert second.get("a").state == "completed"
