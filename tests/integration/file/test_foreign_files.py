"""Things in the folder that dfq did not put there: set aside and reported, neighbours run on."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys

import pytest

from dfq._core import shard_of
from dfq.errors import DfqError, LeaseLost, QueueUnavailable

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


def reports(queue, name):
    """What doctor says about the thing called ``name``."""
    return [f for f in queue.doctor() if f.level != "ok" and name in f"{f.subject} {f.message}"]


@pytest.fixture
def neighbours(folder):
    """Three tasks that must not notice anything."""
    folder.open().push_many([folder.open().new_task(n, id=f"n{n}") for n in range(3)])
    return ["n0", "n1", "n2"]


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
    assert reports(queue, "alien")
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
    assert reports(queue, "alien")


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
    assert reports(queue, "held")
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
    assert reports(queue, f"pending/{shard.name}")


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
        timeout=10,
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
    assert reports(queue, "broken")


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
