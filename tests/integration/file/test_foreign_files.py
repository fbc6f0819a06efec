"""Things in the folder that dfq did not put there: set aside and reported, neighbours run on."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys

import pytest

from dfq._core import shard_of
from dfq.errors import DfqError, QueueUnavailable
from tests.patience import patience

STRANGER = 65_534


@pytest.fixture
def outside(tmp_path):
    """A directory that looks like a task, but is not ours."""
    path = tmp_path / "outside"
    path.mkdir()
    (path / "task.json").write_text('"not yours"')
    yield path
    assert [p.name for p in path.iterdir()] == ["task.json"]
    assert (path / "task.json").read_text() == '"not yours"'


def _socket(path, outside):
    # A socket's path may not be long; its name relative to here is short.
    here = os.open(".", os.O_RDONLY)
    try:
        os.chdir(path.parent)
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
    finally:
        os.fchdir(here)
        os.close(here)


def _strangers_directory(path, outside):
    path.mkdir()
    (path / "task.json").write_text('"a stranger\'s"')
    os.chown(path, STRANGER, STRANGER)


THINGS = {
    "symlink to a directory": lambda path, outside: path.symlink_to(outside),
    "symlink to a file": lambda path, outside: path.symlink_to(outside / "task.json"),
    "dangling symlink": lambda path, outside: path.symlink_to(outside / "nothing"),
    "symlink to itself": lambda path, outside: path.symlink_to(path),
    "FIFO": lambda path, outside: os.mkfifo(path),
    "socket": _socket,
    "device": lambda path, outside: os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5)),
    "block device": lambda path, outside: os.mknod(path, stat.S_IFBLK | 0o600, os.makedev(7, 250)),
    "directory of another user": _strangers_directory,
    "empty directory": lambda path, outside: path.mkdir(),
    "file": lambda path, outside: path.write_text("1"),
    "empty file": lambda path, outside: path.touch(),
}
NEED_ROOT = ("device", "block device", "directory of another user")


def things(*without):
    return pytest.mark.parametrize(
        "place_thing",
        [
            pytest.param(make, id=name, marks=[pytest.mark.needs_root] * (name in NEED_ROOT))
            for name, make in THINGS.items()
            if name not in without
        ],
    )


@things()
def test_a_foreign_thing_in_place_of_a_task_is_set_aside(
    folder, neighbours, outside, work_off, place_thing
):
    directory = folder.task("alien")
    directory.parent.mkdir(exist_ok=True)
    place_thing(directory, outside)
    queue = folder.open()
    assert work_off(queue) == neighbours
    assert not directory.exists() and not directory.is_symlink()
    (where,) = folder.set_aside()
    assert where == f"pending/{shard_of('alien')}/alien"
    assert queue.stats().quarantined == 1
    assert folder.reports(queue, "alien")
    queue.push("mine", id="alien")
    assert queue.claim().task.payload == "mine"


@things()
def test_a_foreign_thing_that_comes_while_the_queue_is_open_is_set_aside(
    folder, neighbours, outside, work_off, place_thing
):
    queue = folder.open()
    assert work_off(queue) == neighbours
    folder.task("alien").parent.mkdir(exist_ok=True)
    place_thing(folder.task("alien"), outside)
    queue.push(1, id="late")
    assert work_off(queue) == ["late"]
    assert queue.stats().quarantined == 1


@things("empty directory", "file", "directory of another user")
def test_a_foreign_thing_is_set_aside_by_sweep_too(folder, neighbours, outside, place_thing):
    folder.task("alien").parent.mkdir(exist_ok=True)
    place_thing(folder.task("alien"), outside)
    queue = folder.open()
    assert queue.sweep().quarantined == 1
    assert queue.stats().ready == 3
    assert queue.stats().quarantined == 1


@things("file")
def test_a_foreign_thing_in_place_of_task_json_sets_the_task_aside(
    folder, neighbours, outside, work_off, place_thing
):
    folder.task("alien").mkdir(parents=True)
    place_thing(folder.task("alien") / "task.json", outside)
    queue = folder.open()
    assert work_off(queue) == neighbours
    assert list(folder.set_aside()) == [f"pending/{shard_of('alien')}/alien"]
    assert folder.reports(queue, "alien")


@things("empty file")
def test_a_foreign_thing_in_place_of_lease_json_is_set_aside_and_the_task_runs(
    folder, neighbours, outside, work_off, place_thing
):
    queue = folder.open()
    queue.push("payload", id="held")
    lease = folder.task("held") / "lease.json"
    place_thing(lease, outside)
    # Its age is told by the file's own time stamp.
    os.utime(lease, (1, 1), follow_symlinks=False)
    assert work_off(queue) == ["held", *neighbours]
    assert list(folder.set_aside()) == [f"pending/{shard_of('held')}/held/lease.json"]
    assert folder.reports(queue, "held")
    record = queue.get("held")
    assert record.task.payload == "payload"
    assert record.lease.attempt == 2, "a delivery that may have been counts"


@things("empty file")
def test_a_foreign_lease_json_is_mended_by_sweep_too(folder, neighbours, outside, place_thing):
    queue = folder.open()
    queue.push("payload", id="held")
    place_thing(folder.task("held") / "lease.json", outside)
    os.utime(folder.task("held") / "lease.json", (1, 1), follow_symlinks=False)
    assert queue.sweep().expired_leases == 1
    assert queue.get("held").state == "ready"


@things("empty directory", "directory of another user")
def test_a_foreign_thing_in_place_of_a_shard_does_not_stop_the_others(
    folder, neighbours, outside, work_off, place_thing
):
    shard = folder.task("alien").parent
    assert not shard.exists()
    place_thing(shard, outside)
    queue = folder.open()
    assert work_off(queue) == neighbours
    assert queue.stats().completed == 3
    assert folder.reports(queue, f"pending/{shard.name}")


@things("empty directory", "directory of another user")
@pytest.mark.parametrize("area", ["pending", "completed", "failed", "tmp", "quarantine"])
def test_a_foreign_thing_in_place_of_an_area_is_refused_by_name(folder, outside, place_thing, area):
    folder.path.mkdir()
    place_thing(folder.path / area, outside)
    with pytest.raises(QueueUnavailable, match=f"queue/{area} "):
        folder.open().push(1)


@pytest.mark.needs_root
@pytest.mark.parametrize("part", ["pending", "pending/shard", "completed", "tmp", "quarantine"])
def test_a_directory_that_another_user_owns_is_refused_by_name_or_reported(
    folder, neighbours, part
):
    victim = folder.task("n0").parent if part == "pending/shard" else folder.path / part
    os.chown(victim, STRANGER, STRANGER)
    queue = folder.open()
    try:
        queue.claim()
        reported = " ".join(f"{f.subject} {f.message}" for f in queue.doctor() if f.level != "ok")
    except DfqError as error:
        reported = str(error)
    assert victim.name in reported


@things("empty directory", "directory of another user", "file", "empty file")
def test_a_foreign_thing_in_place_of_queue_json_is_refused_by_name(
    folder, outside, place_thing, environment
):
    folder.path.mkdir()
    place_thing(folder.path / "queue.json", outside)
    # In a process of its own: a reader of a FIFO may wait for ever.
    source = (
        "import sys, dfq\n"
        "try:\n    dfq.open(sys.argv[1]).push(1)\n"
        "except dfq.DfqError as error:\n    print(error)\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", source, folder.path],
        env=environment,
        capture_output=True,
        text=True,
        timeout=patience(10),
        check=False,
    )
    assert told.returncode == 0, told.stderr
    assert "queue.json" in told.stdout


@things("empty directory", "directory of another user", "file", "empty file")
def test_a_foreign_lock_file_is_either_harmless_or_refused_by_name(folder, outside, place_thing):
    folder.path.mkdir()
    place_thing(folder.path / "lock", outside)
    try:
        folder.open().push(1)
    except DfqError as error:
        assert "lock" in str(error)


@pytest.mark.parametrize("name", ["result.json", "state.json"])
@things()
def test_a_foreign_result_or_state_is_not_read_and_not_in_the_way(
    folder, outside, place_thing, name
):
    queue = folder.open()
    queue.push(1, id="a")
    lease = queue.claim()
    place_thing(folder.task("a") / name, outside)
    try:
        assert queue.load_state("a") in (None, 1)
    except DfqError as error:
        assert name in str(error)
    queue.ack(lease, {"mine": True})
    assert queue.get("a").result == {"mine": True}


def test_names_that_are_no_ids_are_set_aside_and_hidden_files_left_alone(
    folder, neighbours, work_off
):
    shard = folder.task("x").parent
    shard.mkdir(exist_ok=True)
    (shard / "no id").mkdir()
    (shard / "ü").mkdir()
    (shard / os.fsdecode(b"\xff\xfe")).mkdir()
    (shard / ("k" * 201)).mkdir()
    (shard / ".DS_Store").touch()
    (shard / ".stfolder").mkdir()
    queue = folder.open()
    assert work_off(queue) == neighbours
    assert sorted(p.name for p in shard.iterdir() if p.name != "x") == [".DS_Store", ".stfolder"]
    assert queue.stats().quarantined == 4
    queue.doctor()


def test_new_files_and_directories_are_for_the_owner_only(folder):
    queue = folder.open()
    old = os.umask(0)
    try:
        queue.push_many([queue.new_task(n, priority="high") for n in range(5)])
        queue.ack(queue.claim(), "result")
        queue.nack(queue.claim(), "again")
        queue.pause("for a moment")
    finally:
        os.umask(old)
    modes = {p: stat.S_IMODE(p.lstat().st_mode) for p in [folder.path, *folder.path.rglob("*")]}
    assert not {str(p): oct(mode) for p, mode in modes.items() if mode & 0o077}
