"""What should not be in a queue, or is not whole, or was put there by somebody else."""

from __future__ import annotations

import base64
import json
import threading

import pytest

from dfq.engines.s3.keys import failed_key, home, lease_key, task_key
from dfq.errors import WrongState
from dfq.policy import Policy, RetryPolicy
from dfq.store import MAX_BODY_BYTES

LEASE_SECONDS = 2.0
POLICY = Policy(
    lease_seconds=LEASE_SECONDS, heartbeat_seconds=0.5, retry=RetryPolicy(base_seconds=0.0)
)
#: No test waits longer than this for something that should happen.
LONG = 60.0


@pytest.fixture
def queue(opened, url, store):
    """A queue whose leases are short."""
    return opened(url, policy=POLICY)


def claim_when_due(queue, task_id):
    """Claim until the task comes."""
    pause = threading.Event()
    until = queue.clock.boot() + LONG
    while queue.clock.boot() < until:
        lease = queue.claim("next")
        if lease is not None:
            assert lease.task_id == task_id
            return lease
        pause.wait(0.1)
    raise AssertionError(f"{task_id} did not come")


def work_off(queue):
    """Ack whatever can be claimed; the ids."""
    done = set()
    while (lease := queue.claim("worker")) is not None:
        queue.ack(lease, "done")
        done.add(lease.task_id)
    return done


def told(queue, subject):
    return [one for one in queue.doctor() if subject in one.subject and one.level != "ok"]


FOREIGN = (
    "pending/README.txt",
    "pending/ab/notes.md",
    "pending/ab/some-task/extra.json",
    "pending/ab/cd/ef/task.json",
    "pending/ab/.hidden/task.json",
)


def test_a_foreign_object_is_left_alone_and_told(queue, store):
    for key in FOREIGN:
        store.put(key, b"not yours")
    queue.push(1, id="t")
    assert work_off(queue) == {"t"}
    queue.sweep()
    assert queue.stats().pending == 0
    assert [record.task.id for record in queue.list()] == ["t"]
    assert {one.subject for one in queue.doctor() if "left alone" in one.message} == set(FOREIGN)
    queue.purge()
    assert [store.read(key).body for key in FOREIGN] == [b"not yours"] * len(FOREIGN)


DAMAGED = {
    "cut": lambda body: body[: len(body) // 2],
    "empty": lambda body: b"",
    "garbage": lambda body: b"\x00\xff\xfe",
    "of another task": lambda body: body.replace(b'"id":"t"', b'"id":"u"'),
    "without a payload": lambda body: b'{"dfq": 1, "id": "t"}',
    "with a bad field": lambda body: body.replace(b'"priority":50', b'"priority":"top"'),
}


def damage(queue, store, how):
    """Push a task among others and damage it; what is there then."""
    queue.push(1, id="t")
    for name in ("a", "b"):
        queue.push(1, id=name)
    key = task_key(home("t"))
    body = DAMAGED[how](store.read(key).body)
    assert body != store.read(key).body
    store.put(key, body)
    return body


def check_quarantine(queue, store, body):
    (entry,) = store.list("quarantine/").entries
    kept = json.loads(store.read(entry.key).body)
    assert base64.b64decode(kept["body"]) == body
    assert kept["key"] == task_key(home("t"))
    assert queue.stats().quarantined == 1
    (finding,) = told(queue, "quarantine/")
    assert finding.message == f"set aside: {kept['reason']}"
    assert store.read(task_key(home("t"))) is None
    assert store.read(lease_key(home("t"))) is None


@pytest.mark.parametrize("how", DAMAGED)
def test_a_damaged_task_is_set_aside_by_whoever_claims_it(queue, store, how):
    body = damage(queue, store, how)
    assert work_off(queue) == {"a", "b"}
    check_quarantine(queue, store, body)


@pytest.mark.parametrize("how", DAMAGED)
def test_a_damaged_task_is_set_aside_by_a_sweep(queue, store, how):
    body = damage(queue, store, how)
    (finding,) = told(queue, "t")
    assert "The next sweep sets it aside" in finding.advice
    assert queue.sweep().quarantined == 1
    check_quarantine(queue, store, body)
    assert queue.sweep().quarantined == 0
    assert work_off(queue) == {"a", "b"}


def test_an_id_whose_task_was_set_aside_can_be_pushed_again(queue, store):
    damage(queue, store, "cut")
    queue.sweep()
    queue.push("mended", id="t")
    assert work_off(queue) == {"a", "b", "t"}
    assert queue.get("t").task.payload == "mended"


def test_a_task_that_is_far_too_large_stops_nobody_else(queue, store):
    queue.push(1, id="t")
    key = task_key(home("t"))
    put = store._requests.send
    put("put", "PUT", store.address.prefix + key, body=bytes(MAX_BODY_BYTES + 1))
    for name in ("a", "b"):
        queue.push(1, id=name)
    assert work_off(queue) == {"a", "b"}
    queue.sweep()
    assert queue.stats().pending == 0
    (finding,) = told(queue, "t")
    assert f"{MAX_BODY_BYTES:,} bytes" in finding.message


LEASES = {
    "cut": b'{"dfq":1,"state":"leas',
    "empty": b"",
    "of no known state": b'{"dfq":1,"state":"asleep","fence":1}',
    "with an odd fence": b'{"dfq":1,"state":"leased","fence":"one"}',
    # As the first paper has it: no fence, no nonce, and a time by its worker's own clock.
    "of an older version": b'{"worker_id": "old", "expires_at": "2099-01-01T00:00:00Z"}',
    "of an older version, past": b'{"worker_id": "old", "expires_at": "1999-01-01T00:00:00Z"}',
}


@pytest.mark.parametrize("which", LEASES)
def test_a_lease_that_tells_little_ends_when_its_time_is_over(queue, store, which):
    queue.push("work", id="t")
    before = queue.clock.boot()
    store.create(lease_key(home("t")), LEASES[which])
    assert queue.claim("early") is None
    assert queue.get("t").state == "leased"
    lease = claim_when_due(queue, "t")
    assert queue.clock.boot() - before >= LEASE_SECONDS
    assert (lease.fence, lease.attempt) == (2, 2)
    (error,) = lease.task.errors
    assert (error.kind, error.worker_id) == ("crash", "old" if "old" in which else "unknown")
    queue.ack(lease, "done")
    assert queue.get("t").result == "done"


def test_a_damaged_lease_is_ended_by_a_sweep_too(queue, store):
    queue.push("work", id="t")
    store.create(lease_key(home("t")), LEASES["cut"])
    pause = threading.Event()
    for _ in range(int(LONG / 0.1)):
        if queue.sweep().expired_leases:
            break
        assert queue.get("t").state == "leased"
        pause.wait(0.1)
    assert queue.get("t").state == "ready"
    assert store.read(lease_key(home("t"))) is None


def test_a_lease_of_a_newer_version_is_left_alone(queue, store):
    newer = b'{"dfq":99,"holders":["a","b"],"seconds":0.1,"state":"shared"}'
    for name in ("t", "a"):
        queue.push(1, id=name)
    store.create(lease_key(home("t")), newer)
    pause = threading.Event()
    until = queue.clock.boot() + 2 * LEASE_SECONDS
    seen = set()
    while queue.clock.boot() < until:
        seen |= work_off(queue)
        queue.sweep()
        pause.wait(0.2)
    assert seen == {"a"}
    assert store.read(lease_key(home("t"))).body == newer
    assert store.read(task_key(home("t"))) is not None
    assert queue.get("t").state == "leased"
    (finding,) = told(queue, "t")
    assert "newer dfq" in finding.message


def test_a_task_of_a_newer_version_is_left_alone(queue, store):
    newer = b'{"dfq":99,"id":"t","parts":[1,2]}'
    queue.push(1, id="a")
    store.create(task_key(home("t")), newer)
    assert work_off(queue) == {"a"}
    assert queue.sweep().quarantined == 0
    assert store.read(task_key(home("t"))).body == newer
    assert store.read(lease_key(home("t"))) is None
    (finding,) = told(queue, "t")
    assert "upgrade dfq" in finding.message


PLACES = ("pending/by-hand/t", "pending/t", "pending/zz/t", home("t"))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("body", [b'{"city": "Bern"}', b"[1, 2]", b'"text"', b"null"])
def test_bare_json_put_there_by_a_script_is_a_task_wherever_it_is(queue, store, place, body):
    store.put(f"{place}/task.json", body)
    (record,) = queue.list()
    assert (record.task.id, record.state) == ("t", "ready")
    lease = queue.claim("worker")
    assert lease.task.payload == json.loads(body)
    queue.nack(lease, "not yet", delay=0)
    lease = queue.claim("worker")
    assert (lease.fence, lease.attempt) == (2, 2)
    lease = queue.heartbeat(lease)
    queue.ack(lease, "done")
    assert queue.claim("worker") is None
    (record,) = queue.list()
    assert (record.state, record.result) == ("completed", "done")


def test_a_task_that_is_left_alone_costs_nothing_more(queue, store):
    store.create(task_key(home("t")), b'{"dfq":99}')
    assert queue.claim("worker") is None
    before = queue.store.requests.snapshot()
    assert queue.claim("worker") is None
    after = queue.store.requests.snapshot()
    assert (after["put"], after["delete"]) == (before["put"], before["delete"])
    store.put(task_key(home("t")), b'"mended"')
    assert queue.claim("worker").task.payload == "mended"


def test_a_damaged_record_hides_no_other(queue, store):
    for name in ("t", "a"):
        queue.push(1, id=name, max_attempts=1)
        queue.nack(queue.claim("worker"), "no")
    store.put(failed_key("t"), b'{"dfq":1,"task_id":"t","ta')
    assert [record.task.id for record in queue.list("failed")] == ["a"]
    (finding,) = told(queue, failed_key("t"))
    assert "damaged" in finding.message
    with pytest.raises(WrongState, match="damaged"):
        queue.requeue("t")
    assert queue.purge("failed") == 1
    assert store.read(failed_key("t")) is not None


def test_a_damaged_line_among_completed_records_hides_no_other(queue, store):
    key = "completed/2026-01-01/001767225600000-0-00000000-2.jsonl"
    record = {
        "dfq": 1,
        "task_id": "t",
        "state": "completed",
        "finished_at": "2026-01-01T00:00:00Z",
        "task": {"dfq": 1, "id": "t", "payload": 1},
    }
    whole = json.dumps(record).encode()
    store.put(key, whole + b"\n" + whole[:40] + b"\n")
    assert [one.task.id for one in queue.list("completed")] == ["t"]
    (finding,) = told(queue, key)
    assert finding.message == "1 records of completed tasks are damaged"
