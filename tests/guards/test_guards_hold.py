"""One test for each guard that can be shown by a single process. run.py takes them out."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dfq import LeaseLost, _core
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
    from dfq import DfqError

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
