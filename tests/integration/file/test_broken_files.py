"""Files that are dfq's own but damaged: set aside with their content, neighbours run on."""

from __future__ import annotations

import os

import pytest

from dfq._core import shard_of
from dfq.errors import DfqError, LeaseLost

BROKEN = {
    "empty": b"",
    "truncated": b'{"dfq": 1, "id": "broken", "payl',
    "no payload": b'{"dfq": 1, "id": "broken"}',
    "of another task": b'{"dfq": 1, "id": "other", "payload": 1}',
    "not JSON": b"hello",
    "NUL bytes": bytes(512),
    "not UTF-8": b'"\xff"',
    "NaN": b'{"a": NaN}',
    "nested 10,000 deep": b"[" * 10_000 + b"]" * 10_000,
    "too large": b'"' + b"x" * 3_000_000 + b'"',
    "two values": b"1 2",
    "of a newer dfq": b'{"dfq": 99, "id": "broken", "payload": 1}',
    "priority of the wrong type": b'{"dfq": 1, "id": "broken", "payload": 1, "priority": "high"}',
    "retry of the wrong type": b'{"dfq": 1, "id": "broken", "payload": 1, "retry": 5}',
    "an unknown retry key": b'{"dfq": 1, "id": "broken", "payload": 1, "retry": {"x": 1}}',
    "a bad dependency": b'{"dfq": 1, "id": "broken", "payload": 1, "depends_on": ["../x"]}',
    "a lone surrogate": b'{"dfq": 1, "id": "broken", "payload": "\\ud800"}',
    "a number beyond all": b'{"dfq": 1, "id": "broken", "payload": 1e999}',
}
broken_files = pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN.keys())


@broken_files
@pytest.mark.parametrize("eager", [False, True], ids=["by name", "by priority"])
def test_a_broken_task_json_is_set_aside_with_its_content(
    folder, neighbours, work_off, content, eager
):
    queue = folder.open()
    if eager:
        queue.push(1, id="urgent", priority="high")
    folder.put("broken", content)
    done = work_off(queue)
    assert done == neighbours + ["urgent"] * eager
    (where,) = folder.set_aside()
    assert where == f"pending/{shard_of('broken')}/broken"
    (kept,) = folder.path.glob("quarantine/*/broken/task.json")
    assert kept.read_bytes() == content
    assert queue.stats().quarantined == 1
    assert folder.reports(queue, "broken")


@broken_files
def test_looking_at_a_queue_with_a_broken_task_tells_about_the_others(folder, neighbours, content):
    folder.put("broken", content)
    queue = folder.open()
    assert queue.stats().pending >= 3
    assert {record.task.id for record in queue.list()} >= set(neighbours)
    queue.doctor()
    queue.sweep()
    assert queue.purge() >= 3


def test_a_task_json_that_a_script_is_still_writing_gets_a_moment(folder, clock, work_off):
    queue = folder.open()
    directory = folder.put("slow", b'{"half":')
    assert queue.claim() is None
    (directory / "task.json").write_text('{"half": "whole"}')
    clock.advance(2.5)
    assert queue.claim().task.payload == {"half": "whole"}
    assert queue.stats().quarantined == 0


LEASES = {
    "empty": b"",
    "truncated": b'{"task_id":"held","worker_id":"w","lea',
    "foreign": b'{"owner": "somebody"}',
    "not JSON": b"12:30 locked by bob",
    "NUL bytes": bytes(300),
    "too large": b"x" * 100_000,
    "a negative fence": b'{"fence": -1}',
}


@pytest.mark.parametrize("content", LEASES.values(), ids=LEASES.keys())
def test_a_broken_lease_is_left_alone_for_a_moment_then_replaced(
    folder, neighbours, work_off, content
):
    queue = folder.open()
    queue.push("payload", id="held")
    path = folder.task("held") / "lease.json"
    path.write_bytes(content)
    assert {lease.task_id for lease in queue.claim_many(10)} == set(neighbours)
    os.utime(path, (1, 1))
    folder.clock.advance(2.5)
    lease = queue.claim("w")
    assert (lease.task_id, lease.attempt) == ("held", 2)
    assert lease.fence >= 2, "the broken lease may have had the first fence"
    queue.ack(lease)
    assert queue.stats().quarantined == (1 if content else 0)


def test_a_holder_whose_lease_was_overwritten_can_not_settle(folder):
    queue = folder.open()
    queue.push(1, id="a")
    lease = queue.claim()
    (folder.task("a") / "lease.json").write_text("{}")
    for verb in (queue.ack, queue.nack, queue.release, queue.heartbeat, queue.bury):
        with pytest.raises(LeaseLost):
            verb(lease)
    assert queue.get("a").task.attempts == 0


def test_broken_files_of_a_finished_task_do_not_stop_looking_or_sweeping(folder):
    queue = folder.open(finished="archive", finished_after_seconds=0)
    for name in ("torn", "fine"):
        queue.push(1, id=name)
    while lease := queue.claim():
        queue.ack(lease, "done")
    (folder.task("torn", "completed") / "task.json").write_bytes(b"")
    (folder.task("torn", "completed") / "result.json").write_bytes(b"{")
    queue.doctor()
    assert "fine" in {record.task.id for record in queue.list("completed")}
    queue.sweep()
    assert queue.get("fine").state == "completed"


def test_a_broken_result_is_told_by_name(folder):
    queue = folder.open()
    queue.push(1, id="a")
    queue.ack(queue.claim(), "done")
    (folder.task("a", "completed") / "result.json").write_bytes(b'{"torn":')
    try:
        assert queue.get("a").result is None
    except DfqError as error:
        assert "result.json" in str(error)


def test_what_was_set_aside_can_be_mended_and_moved_back(folder, work_off):
    queue = folder.open()
    folder.put("broken", b'{"half":')
    assert work_off(queue) == []
    (cell,) = folder.path.glob("quarantine/*/broken")
    (cell / "task.json").write_text("1")
    cell.rename(folder.task("broken"))
    assert work_off(queue) == ["broken"]


def test_a_task_that_runs_when_its_file_breaks_is_set_aside_not_lost(folder):
    queue = folder.open()
    queue.push(1, id="a")
    lease = queue.claim()
    (folder.task("a") / "task.json").write_bytes(b"")
    queue.nack(lease, "failed")
    assert queue.stats().quarantined == 1
    assert [p.name for p in folder.path.glob("quarantine/*/a")] == ["a"]
