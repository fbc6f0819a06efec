"""A wall clock that jumps: no lease is stolen, none is held for ever."""

from __future__ import annotations

import os

import orjson
import pytest

from dfq.errors import LeaseLost

DAY = 86_400.0
jumps = pytest.mark.parametrize("jump", [DAY, -DAY, -1_699_999_000.0], ids=["on", "back", "1970"])


@jumps
def test_a_jump_steals_no_lease_and_the_lease_still_ends_in_time(folder, clock, jump):
    queue, other = folder.open(), folder.open()
    queue.push(1, id="a")
    lease = queue.claim("w")
    clock.jump_wall(jump)
    assert other.claim("other") is None
    assert other.sweep().expired_leases == 0
    lease = queue.heartbeat(lease)
    clock.advance(queue.policy.lease_seconds - 1)
    assert other.claim("other") is None
    clock.advance(2)
    taken = other.claim("other")
    assert (taken.attempt, taken.fence > lease.fence) == (2, True)
    with pytest.raises(LeaseLost):
        queue.ack(lease)


@jumps
def test_a_jump_between_claim_and_ack_does_no_harm(folder, clock, jump):
    queue = folder.open()
    queue.push(1, id="a")
    lease = queue.claim("w")
    clock.jump_wall(jump)
    queue.ack(lease, "done")
    assert queue.get("a").result == "done"


@jumps
def test_ready_tasks_stay_ready_over_a_jump(folder, clock, jump):
    queue = folder.open()
    queue.push(1, id="a")
    clock.jump_wall(jump)
    assert queue.stats().ready == 1
    assert (queue.stats().oldest_ready_seconds or 0) >= 0
    queue.push(1, id="b")
    assert {lease.task_id for lease in folder.open().claim_many(5)} == {"a", "b"}


def test_a_delay_ends_when_the_clock_jumps_on(folder, clock):
    queue = folder.open()
    queue.push(1, id="a", delay=3_600)
    assert queue.claim() is None
    clock.jump_wall(DAY)
    assert queue.claim().task_id == "a"


@pytest.mark.parametrize("jump", [-DAY, -1_699_999_000.0], ids=["back", "1970"])
def test_a_jump_back_drops_no_finished_task_and_keeps_none_for_ever(folder, clock, jump):
    queue = folder.open(finished="drop", finished_after_seconds=3_600)
    queue.push(1, id="before")
    queue.ack(queue.claim())
    clock.jump_wall(jump)
    queue.push(1, id="after")
    queue.ack(queue.claim())
    queue.sweep()
    assert {record.task.id for record in queue.list("completed")} == {"before", "after"}
    clock.advance(3_601)
    queue.sweep()
    assert "after" not in {record.task.id for record in queue.list("completed")}
    clock.jump_wall(-jump)
    queue.sweep()
    assert queue.stats().completed == 0


@pytest.mark.parametrize("offset", [DAY, -DAY], ids=["from tomorrow", "from yesterday"])
def test_a_torn_lease_with_a_time_stamp_from_another_day_is_replaced(folder, clock, offset):
    queue = folder.open()
    queue.push(1, id="a")
    path = folder.task("a") / "lease.json"
    path.touch()
    stamp = path.stat().st_mtime + offset
    os.utime(path, (stamp, stamp))
    lease = queue.claim()
    clock.advance(3)
    lease = lease or queue.claim()
    assert (lease.task_id, lease.attempt) == ("a", 2)


def foreign_lease(folder, **changes):
    """The lease of a worker on another machine, on a disk that was moved or is shared."""
    queue = folder.open(lease_seconds=60)
    queue.push(1, id="a")
    queue.claim("w")
    path = folder.task("a") / "lease.json"
    lease = orjson.loads(path.read_bytes())
    lease |= {"host": "elsewhere", "boot_id": "another", "pid": 1} | changes
    path.write_bytes(orjson.dumps(lease))
    return path


def test_a_lease_from_another_machine_is_respected_while_it_is_young(folder, clock):
    foreign_lease(folder)
    other = folder.open(lease_seconds=60)
    clock.advance(10_000)
    assert other.claim("other") is None
    clock.jump_wall(10 * DAY)
    assert other.claim("other") is None


def test_a_lease_from_another_machine_ends_by_the_age_of_its_file(folder, clock):
    path = foreign_lease(folder)
    stamp = path.stat().st_mtime - 61
    os.utime(path, (stamp, stamp))
    assert folder.open(lease_seconds=60).claim("other").attempt == 2


def test_a_lease_from_another_machine_with_a_time_stamp_from_tomorrow_ends_too(folder, clock):
    path = foreign_lease(folder)
    stamp = path.stat().st_mtime + DAY
    os.utime(path, (stamp, stamp))
    other = folder.open(lease_seconds=60)
    assert other.claim("other") is None
    clock.advance(61)
    assert other.claim("other").attempt == 2


def test_a_lease_from_before_the_last_start_of_this_machine_is_over_at_once(folder):
    import socket

    foreign_lease(folder, host=socket.gethostname())
    assert folder.open(lease_seconds=60).claim("other").attempt == 2


def test_a_lease_whose_process_is_gone_is_over_at_once(folder, script):
    source = "import sys, dfq; dfq.open(sys.argv[1]).claim('mayfly')"
    folder.open().push(1, id="a")
    assert script(source, folder.path).wait(30) == 0
    lease = folder.open().claim("w")
    assert (lease.attempt, lease.task.errors[0].kind) == (2, "crash")
    assert "mayfly" in lease.task.errors[0].message


def test_two_workers_of_the_same_name_do_not_share_a_lease(folder, clock):
    one, two = folder.open(), folder.open()
    one.push(1, id="a")
    one.push(1, id="b")
    first, second = one.claim("same"), two.claim("same")
    assert {first.task_id, second.task_id} == {"a", "b"}
    assert first.lease_id != second.lease_id
    assert one.claim("same") is None and two.claim("same") is None
    clock.advance(one.policy.lease_seconds)
    taken = {lease.task_id: lease for lease in two.claim_many(2, "same")}
    assert set(taken) == {"a", "b"}
    for verb in (one.ack, one.nack, one.heartbeat, one.release, one.bury):
        with pytest.raises(LeaseLost):
            verb(first)
    two.ack(taken[first.task_id])
    assert one.get(first.task_id).lease.lease_id == taken[first.task_id].lease_id
