"""Parts of the folder are removed and made again under an open queue, which goes on with the
new ones."""

from __future__ import annotations

import shutil
import threading

import pytest

from dfq import DfqError
from dfq._core import shard_of
from tests.patience import patience

#: Less than the safety poll takes; and the folder's clock stands still.
LONG = patience(15.0)


@pytest.fixture
def worker(folder):
    """It has worked, found nothing more, and is watching."""
    worker = folder.open()
    worker.push(0)
    worker.ack(worker.claim())
    for _ in range(2):
        assert worker.claim() is None
    assert worker.core.is_watched
    return worker


def claim_once_more(worker):
    """Whether or not it is an error just now."""
    try:
        assert worker.claim() is None
    except DfqError as error:
        assert "pending" in str(error) or "deleted" in str(error)


def take_when_woken(worker, expected):
    taken = set()
    for _ in range(50):
        if taken >= expected or not worker.wait(LONG):
            break
        taken |= {lease.task_id for lease in worker.claim_many(100)}
    return taken


@pytest.mark.parametrize("claimed_between", [True, False], ids=["noticed", "unnoticed"])
def test_a_push_into_a_new_pending_folder_wakes_a_worker(folder, worker, claimed_between):
    shutil.rmtree(folder.path / "pending")
    if claimed_between:
        claim_once_more(worker)
    pusher = folder.open()
    for n in range(8):
        pusher.push(n, id=f"t{n}")
        assert take_when_woken(worker, {f"t{n}"}) == {f"t{n}"}


def test_a_shard_that_was_removed_and_made_again_is_watched_again(folder, worker):
    pusher = folder.open()
    for _ in range(3):
        pusher.push(1, id="a")
        assert take_when_woken(worker, {"a"}) == {"a"}
        shutil.rmtree(folder.path / "pending" / shard_of("a"))
        claim_once_more(worker)


def test_a_task_moved_away_with_its_shard_and_back_is_found(folder, worker):
    pusher = folder.open()
    pusher.push(1, id="a")
    shard = folder.path / "pending" / shard_of("a")
    shard.rename(folder.path / "away")
    claim_once_more(worker)
    (folder.path / "away").rename(shard)
    assert take_when_woken(worker, {"a"}) == {"a"}
    pusher.ack(pusher.leases()[0])
    pusher.purge("completed")
    pusher.push(2, id="a")
    assert take_when_woken(worker, {"a"}) == {"a"}


@pytest.mark.parametrize("claimed_between", [True, False], ids=["noticed", "unnoticed"])
def test_priorities_hold_again_when_lanes_was_removed_and_made_again(
    folder, worker, claimed_between
):
    pusher = folder.open()
    shutil.rmtree(folder.path / "lanes")
    if claimed_between:
        assert worker.claim() is None
    pusher.push_many([pusher.new_task(n, priority="low") for n in range(60)])
    pusher.push("urgent", id="urgent", priority="critical")
    assert worker.claim().task_id == "urgent"


# The lock file

HOLDER = """
import fcntl, sys
with open(sys.argv[1], "r+") as lock:
    fcntl.lockf(lock, fcntl.LOCK_EX, 1, int(sys.argv[2], 16))
    print("held", flush=True)
    sys.stdin.readline()
"""
SETTLING = {
    "ack": (lambda queue, lease: queue.ack(lease), "completed"),
    "nack": (lambda queue, lease: queue.nack(lease, "no", delay=0), "ready"),
    "bury": (lambda queue, lease: queue.bury(lease, "no"), "failed"),
}


@pytest.mark.parametrize(("settle", "state"), SETTLING.values(), ids=SETTLING.keys())
def test_a_lock_file_that_was_removed_and_made_again_excludes_as_the_old_one_did(
    folder, script, settle, state
):
    queue = folder.open()
    queue.push(1, id="a")
    lease = queue.claim()
    (folder.path / "lock").unlink()
    # Another process that comes only now makes the file that all who come later lock.
    folder.path.joinpath("lock").touch(0o600)
    holder = script(HOLDER, folder.path / "lock", shard_of("a"))
    assert holder.stdout.readline() == "held\n"
    settled = threading.Event()

    def work():
        settle(queue, lease)
        settled.set()

    thread = threading.Thread(target=work)
    thread.start()
    assert not settled.wait(0.5), "it went on beside the holder of the lock"
    assert queue.get("a").state == "leased"
    holder.stdin.write("go\n")
    holder.stdin.flush()
    assert settled.wait(60)
    thread.join()
    assert queue.get("a").state == state


def test_a_lock_file_that_was_only_removed_is_made_again(folder):
    queue = folder.open()
    queue.push(1, id="a")
    lease = queue.claim()
    (folder.path / "lock").unlink()
    queue.ack(lease)
    assert (folder.path / "lock").exists(), "else the next process would lock another file"
