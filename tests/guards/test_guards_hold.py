"""One test for each guard that can be shown by a single process. run.py takes them out."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from dfq import DfqError, LeaseLost, Policy, _core
from dfq.engines.file import FileQueue
from dfq.lease import Lease


@pytest.fixture
def queue(tmp_path: Path) -> FileQueue:
    return FileQueue(tmp_path / "queue")


def shard(queue: FileQueue, task_id: str, area: str = "pending") -> Path:
    return Path(queue.path) / area / hashlib.sha256(task_id.encode()).hexdigest()[:2]


VERBS: dict[str, Callable[[FileQueue, Lease], object]] = {
    "ack": lambda queue, lease: queue.ack(lease, "late"),
    "nack": lambda queue, lease: queue.nack(lease, "late", delay=0),
    "release": lambda queue, lease: queue.release(lease),
    "bury": lambda queue, lease: queue.bury(lease, "late"),
    "heartbeat": lambda queue, lease: queue.heartbeat(lease),
    "save_state": lambda queue, lease: queue.save_state(lease, "late"),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("wrong", ["an older fence", "a newer fence", "another nonce"])
def test_a_lease_that_differs_in_fence_or_nonce_is_refused_and_changes_nothing(
    queue: FileQueue, verb: str, wrong: str
) -> None:
    queue.push(1, id="a")
    lease = queue.claim("me")
    assert lease is not None
    forged = {
        "an older fence": dataclasses.replace(lease, fence=lease.fence - 1),
        "a newer fence": dataclasses.replace(lease, fence=lease.fence + 1),
        "another nonce": dataclasses.replace(lease, lease_id="0" * len(lease.lease_id)),
    }[wrong]
    directory = shard(queue, "a") / "a"
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    with pytest.raises(LeaseLost):
        VERBS[verb](queue, forged)
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == before
    queue.ack(lease)


def test_of_two_handles_that_both_know_a_task_one_gets_it(tmp_path: Path) -> None:
    one, two = FileQueue(tmp_path / "queue"), FileQueue(tmp_path / "queue")
    one.push(1, id="a")
    one.push(2, id="b")
    # Each has scanned, so that each would try what the other has taken.
    held = [one.claim("one"), two.claim("two"), one.claim("one"), two.claim("two")]
    assert sorted(lease.task_id for lease in held if lease) == ["a", "b"]


def test_a_fence_grows_over_nack_release_and_requeue(queue: FileQueue) -> None:
    queue.push(1, id="a")
    fences = []
    for settle in ("nack", "release", "bury", "ack"):
        lease = queue.claim("me")
        assert lease is not None
        fences.append(lease.fence)
        if settle == "nack":
            queue.nack(lease, delay=0)
        elif settle == "release":
            queue.release(lease)
        elif settle == "bury":
            queue.bury(lease)
            queue.requeue("a")
    assert fences == sorted(set(fences)) and len(fences) == 4


@pytest.mark.parametrize("lost", ["the lease", "the fence in the task"])
def test_a_fence_grows_over_a_requeue_by_what_is_left_of_it(queue: FileQueue, lost: str) -> None:
    queue.push(1, id="a")
    for _ in range(3):
        queue.release(queue.claim("me"))
    lease = queue.claim("me")
    queue.bury(lease)
    directory = shard(queue, "a", "failed") / "a"
    if lost == "the lease":
        (directory / "lease.json").unlink()
    else:
        task = json.loads((directory / "task.json").read_text())
        (directory / "task.json").write_text(json.dumps(task | {"fence": 0}))
    queue.requeue("a")
    assert queue.claim("me").fence > lease.fence


def test_a_fence_of_a_new_boot_is_above_all_that_a_power_cut_may_have_taken_back(
    queue: FileQueue,
) -> None:
    queue.push(1, id="a")
    lost = [queue.claim("me").fence]
    before = (shard(queue, "a") / "a" / "task.json").read_bytes()
    queue.nack(queue_lease(queue), delay=0)
    lost.append(queue.claim("me").fence)
    # What a power cut takes back: nothing of a claim or a nack is surely on the disk.
    (shard(queue, "a") / "a" / "task.json").write_bytes(before)
    (shard(queue, "a") / "a" / "lease.json").unlink()
    boot = Path(queue.path) / "boot.json"
    boot.write_text(json.dumps(json.loads(boot.read_text()) | {"boot_id": "the one before"}))
    lease = FileQueue(queue.path).claim("me")
    assert lease is not None and lease.fence > max(lost)


def queue_lease(queue: FileQueue) -> Lease:
    (lease,) = queue.leases()
    return lease


CLAIMS_AND_DIES = """
import os, sys
from dfq.engines.file import FileQueue
assert FileQueue(sys.argv[1]).claim("dies") is not None
os._exit(1)
"""


def claim_and_die(queue: FileQueue) -> None:
    subprocess.run([sys.executable, "-c", CLAIMS_AND_DIES, queue.path], timeout=60)


def test_a_task_that_kills_its_worker_at_every_delivery_fails_with_its_history(
    queue: FileQueue,
) -> None:
    queue.push(1, id="a", max_attempts=2)
    for _ in range(2):
        claim_and_die(queue)
    assert queue.claim("me") is None
    record = queue.get("a")
    assert record is not None and record.state == "failed"
    assert [error.kind for error in record.task.errors] == ["crash", "crash"]


def test_the_result_of_the_dead_is_not_that_of_the_next(queue: FileQueue) -> None:
    queue.push(1, id="a")
    claim_and_die(queue)
    # An ack puts the result in place, then moves the directory: it died in between.
    (shard(queue, "a") / "a" / "result.json").write_text('"of the dead"')
    lease = queue.claim("me")
    assert lease is not None
    queue.ack(lease)
    record = queue.get("a")
    assert record is not None and record.result is None


#: What another process makes of a lease: how it differs from that of a living process here.
STANDINGS: dict[str, tuple[dict[str, object], bool]] = {
    "as it was written": ({}, True),
    "of a process that had this pid before": ({"pid_start": 1}, False),
    "of another pid namespace": ({"pid_start": 1, "pid_namespace": 1}, True),
    "of an earlier boot": ({"boot_id": "earlier"}, False),
    "of another machine": ({"boot_id": "elsewhere", "host": "elsewhere"}, True),
    "that ran out": ({"expires_boot_ms": 0}, False),
}


@pytest.mark.parametrize("kind", STANDINGS)
def test_a_lease_is_kept_or_ended_by_what_it_says_of_its_holder(
    queue: FileQueue, kind: str
) -> None:
    changes, kept = STANDINGS[kind]
    queue.push(1, id="a")
    assert queue.claim("me") is not None
    path = shard(queue, "a") / "a" / "lease.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    other = FileQueue(queue.path)
    assert (other.claim("other") is None) == kept
    assert FileQueue(queue.path).sweep().expired_leases == 0
    assert path.exists()


def test_a_lease_of_a_process_that_is_gone_is_ended_at_once(queue: FileQueue) -> None:
    queue.push(1, id="a")
    claim_and_die(queue)
    assert queue.sweep().expired_leases == 1
    lease = queue.claim("me")
    assert lease is not None and lease.attempt == 2


def test_a_torn_lease_is_left_alone_for_a_moment(queue: FileQueue) -> None:
    queue.push(1, id="a")
    path = shard(queue, "a") / "a" / "lease.json"
    path.touch(mode=0o600)
    assert queue.claim("me") is None, "its writer may be about to fill it"
    os.utime(path, (0, 0))
    assert FileQueue(queue.path).claim("me") is not None


@pytest.mark.parametrize("name", ["../../outside", "a/b", ".hidden", "..", "", "a\0b", "k" * 201])
def test_the_core_itself_refuses_an_id_that_is_a_path(queue: FileQueue, name: str) -> None:
    queue.push(1, id="a")
    secret = Path(queue.path).parent / "outside"
    secret.mkdir()
    (secret / "task.json").write_text(json.dumps({"payload": "secret"}))
    for verb in (
        lambda: queue.core.get(name, (0, 0)),
        lambda: queue.core.remove("pending", name, False),
        lambda: queue.core.fail(name, "", "cancelled", True, (0, 0)),
        lambda: queue.core.requeue(name),
        lambda: queue.core.load_state(name),
    ):
        with pytest.raises(_core.CoreError) as refused:
            verb()
        assert refused.value.args[0] == "invalid"
    assert [path.name for path in secret.iterdir()] == ["task.json"]


def test_a_directory_whose_name_is_no_id_is_not_handed_out(queue: FileQueue) -> None:
    queue.push(1, id="a")
    strange = shard(queue, "not an id") / "not an id"
    strange.mkdir(parents=True)
    (strange / "task.json").write_text("{}")
    lease = queue.claim("me")
    assert lease is not None and lease.task_id == "a"
    assert queue.claim("me") is None


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A task directory that lies outside of the queue."""
    path = tmp_path / "outside" / "bait"
    path.mkdir(parents=True)
    (path / "task.json").write_text(json.dumps({"payload": "secret"}))
    return path


def tree(path: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in path.rglob("*") if p.is_file()}


def claim_what_can_be(queue: FileQueue) -> set[str]:
    """What a claim hands out; a refusal to go on is a DfqError, not a wrong task."""
    try:
        return {lease.task_id for lease in queue.claim_many(10, "me")}
    except DfqError:
        return set()


def test_a_symlink_in_place_of_a_shard_is_not_followed(queue: FileQueue, outside: Path) -> None:
    queue.push(1, id="a")
    before = tree(outside.parent)
    shard(queue, "bait").symlink_to(outside.parent)
    assert "bait" not in claim_what_can_be(queue)
    with pytest.raises(_core.CoreError):
        queue.core.fail("bait", "", "cancelled", True, (0, 0))
    assert tree(outside.parent) == before


def test_a_symlink_in_place_of_a_task_is_not_followed(queue: FileQueue, outside: Path) -> None:
    queue.push(1, id="a")
    before = tree(outside.parent)
    shard(queue, "bait").mkdir(exist_ok=True)
    (shard(queue, "bait") / "bait").symlink_to(outside)
    with pytest.raises(_core.CoreError):
        queue.core.fail("bait", "", "cancelled", True, (0, 0))
    assert claim_what_can_be(queue) == {"a"}
    assert tree(outside.parent) == before


def test_a_symlink_in_place_of_a_task_file_is_not_followed(queue: FileQueue, outside: Path) -> None:
    queue.push(1, id="a")
    directory = shard(queue, "bait") / "bait"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "task.json").symlink_to(outside / "task.json")
    assert claim_what_can_be(queue) == {"a"}


def test_a_symlink_in_place_of_the_lock_is_not_followed(queue: FileQueue, outside: Path) -> None:
    Path(queue.path).mkdir()
    (Path(queue.path) / "lock").symlink_to(outside / "lock")
    with pytest.raises(DfqError):
        queue.push(1, id="a")
    assert not (outside / "lock").exists()


ARCHIVING = Policy(finished="archive", finished_after_seconds=0)


def test_a_symlink_in_place_of_the_archive_is_neither_read_nor_written(
    queue: FileQueue, tmp_path: Path
) -> None:
    for each in (queue, other := FileQueue(tmp_path / "other", policy=ARCHIVING)):
        each.push(1, id=f"of-{Path(each.path).name}")
        each.ack(each.claim("me"))
    other.sweep()
    (day,) = Path(other.path).glob("completed/archive/*.usv")
    before = day.read_bytes()
    archive = Path(queue.path) / "completed" / "archive"
    archive.mkdir()
    (archive / day.name).symlink_to(day)
    with suppress(DfqError):
        assert queue.get("of-other") is None
    with pytest.raises(DfqError):
        FileQueue(queue.path, policy=ARCHIVING).sweep()
    assert day.read_bytes() == before
    assert (shard(queue, "of-queue", "completed") / "of-queue").exists()


@pytest.mark.timeout(30)
def test_a_FIFO_in_place_of_a_task_file_blocks_nobody(queue: FileQueue) -> None:
    queue.push(1, id="a")
    directory = shard(queue, "bait") / "bait"
    directory.mkdir(parents=True, exist_ok=True)
    os.mkfifo(directory / "task.json")
    assert claim_what_can_be(queue) == {"a"}


@pytest.mark.needs_root
def test_a_directory_of_another_user_is_no_task(queue: FileQueue) -> None:
    queue.push(1, id="a")
    queue.push(1, id="theirs")
    os.chown(shard(queue, "theirs") / "theirs", 12_345, 12_345)
    assert claim_what_can_be(queue) == {"a"}


def test_what_is_made_is_for_its_owner_only(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        queue = FileQueue(tmp_path / "new" / "queue")
        queue.push(1, id="a", priority="high")
        lease = queue.claim("me")
        assert lease is not None
        queue.save_state(lease, 1)
        queue.ack(lease, 1)
        queue.push(2, id="b")
    finally:
        os.umask(before)
    made = [tmp_path / "new", *(tmp_path / "new").rglob("*")]
    open_to_others = [str(path) for path in made if path.stat().st_mode & 0o077]
    assert not open_to_others
