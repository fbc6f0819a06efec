"""A task.json that is damaged while somebody holds the task, or has just let it go."""

from __future__ import annotations

import base64
import json

import pytest

from dfq.engines.s3.keys import home, lease_key, task_key
from dfq.engines.s3.vacancy import is_mark
from tests.integration.s3.counted import World

CUT = b'{"cut'


@pytest.fixture(params=[True, False], ids=["conditional delete", "plain delete"])
def world(request) -> World:
    world = World()
    world.store.conditional_delete = request.param
    return world


def left(world):
    """What is there of the task, marks of empty keys aside."""
    entries = world.store.list(home("t")).entries
    leases = [one for one in entries if one.key.endswith("lease.json")]
    states = {json.loads(world.store.read(one.key).body)["state"] for one in leases}
    tasks = [one.key for one in entries if one not in leases and not is_mark(one)]
    return tasks, states - {"free"}


def check_set_aside(world):
    (entry,) = world.store.list("quarantine/").entries
    kept = json.loads(world.store.read(entry.key).body)
    assert base64.b64decode(kept["body"]) == CUT
    assert kept["key"] == task_key(home("t"))
    assert left(world) == ([], set())
    queue = world.open()
    queue.push("again", id="t")
    assert queue.claim().task.payload == "again"


def sweep(world):
    assert world.open().sweep().quarantined == 1


def claim(world):
    assert world.open().claim() is None


@pytest.mark.parametrize("find", [sweep, claim])
def test_it_is_set_aside_when_the_lease_is_over(world, find):
    queue = world.open()
    queue.push(1, id="t")
    assert queue.claim("dies") is not None
    world.store.put(task_key(home("t")), CUT)
    world.clock.advance(queue.policy.lease_seconds + 5)
    find(world)
    check_set_aside(world)


def test_it_stays_while_somebody_holds_it(world):
    queue = world.open()
    queue.push(1, id="t")
    lease = queue.claim("worker")
    world.store.put(task_key(home("t")), CUT)
    other = world.open()
    assert other.sweep().quarantined == 0
    assert other.claim() is None
    assert world.store.list("quarantine/").entries == ()
    queue.ack(lease, "done")
    # It has its end now, and what is left of it goes.
    other.sweep()
    assert world.store.read(task_key(home("t"))) is None
    assert queue.get("t").result == "done"


@pytest.mark.parametrize("find", [sweep, claim])
def test_it_is_set_aside_when_it_was_given_back(world, find):
    queue = world.open()
    queue.push(1, id="t")
    lease = queue.claim("worker")
    world.store.put(task_key(home("t")), CUT)
    # What was committed can't be carried out.
    queue.nack(lease, "no", delay=0)
    assert json.loads(world.store.read(lease_key(home("t"))).body)["state"] == "back"
    find(world)
    check_set_aside(world)


def test_one_beside_the_record_of_its_completion_is_set_aside_and_the_record_stays(world):
    queue = world.open()
    queue.push(1, id="t")
    queue.ack(queue.claim("worker"), "done")
    world.store.put(task_key(home("t")), CUT)
    assert world.open().sweep().quarantined == 1
    assert world.store.read(task_key(home("t"))) is None
    assert queue.get("t").result == "done"
    world.clock.advance(4_000)
    world.open().sweep()
    assert left(world) == ([], set())
    assert world.open().get("t").result == "done"


def test_a_claim_that_is_wary_sets_it_aside_too(world):
    queue = world.open()
    queue.push(1, id="later", delay=1_000)
    assert queue.claim() is None
    queue.push(1, id="t")
    world.store.put(task_key(home("t")), CUT)
    assert queue.claim() is None
    check_set_aside(world)
