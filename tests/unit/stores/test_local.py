"""What only a directory has: folders, links, other processes and a disk."""

from __future__ import annotations

import fcntl
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from dfq.ambient import SYSTEM_CLOCK
from dfq.errors import StoreBusy, StoreRefused, StoreUnsure
from dfq.store import MAX_BODY_BYTES, BodyTooLarge, InvalidKey
from dfq.stores import aside
from dfq.stores.local import LocalStore
from dfq.testing import FakeClock


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


def test_a_key_is_a_file_that_its_owner_alone_can_read(store, root):
    store.create("a/b/c.json", b"{}")
    assert (root / "a/b/c.json").read_bytes() == b"{}"
    assert stat.S_IMODE((root / "a/b/c.json").stat().st_mode) == 0o600
    assert stat.S_IMODE((root / "a/b").stat().st_mode) == 0o700


def test_nothing_is_left_aside(store, root):
    etag = store.create("a/b", b"1")
    store.replace("a/b", b"2", etag)
    store.put("a/b", b"3")
    with pytest.raises(Exception, match="exists"):
        store.create("a/b", b"4")
    assert [path.name for path in (root / ".dfq-store").iterdir() if "lock" not in path.name] == []


def test_a_deleted_key_leaves_no_folders(store, root):
    store.create("a/b/c/d", b"")
    store.create("a/x", b"")
    store.delete("a/b/c/d")
    assert [path.name for path in (root / "a").iterdir()] == ["x"]
    store.delete("a/x")
    assert [path.name for path in root.iterdir()] == [".dfq-store"]


def test_no_symlink_is_followed(store, root, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    (root / "folder").symlink_to(outside)
    (root / "file").symlink_to(outside / "secret")
    assert store.list("").entries == ()
    assert store.read("folder/secret") is None
    with pytest.raises(StoreRefused, match="symlink"):
        store.read("file")
    with pytest.raises(StoreRefused, match="symlink"):
        store.create("folder/new", b"")
    store.put("file", b"mine")
    assert (outside / "secret").read_bytes() == b"secret"
    assert sorted(path.name for path in outside.iterdir()) == ["secret"]


def test_a_key_below_another_key_is_refused_by_name(store):
    store.create("a/b", b"")
    with pytest.raises(StoreRefused, match="a file or a symlink"):
        store.create("a/b/c", b"")
    for use in (store.create, store.put):
        with pytest.raises(StoreRefused, match="other keys begin with a/"):
            use("a", b"")
    assert store.read("a") is None
    assert store.read("a/b/c") is None
    assert store.delete("a/b/c") is False


def test_the_store_s_own_files_are_no_keys(store):
    store.create("key", b"")
    etag = store.read("key").etag
    store.replace("key", b"x", etag)
    assert [entry.key for entry in store.list("").entries] == ["key"]
    with pytest.raises(InvalidKey, match="the store's own"):
        store.read(".dfq-store/lock-01")


def test_foreign_files_are_listed_if_their_name_is_text(store, root):
    (root / "with space").write_bytes(b"12")
    (os.fsencode(root) + b"/\xff").decode(errors="surrogateescape")
    Path(os.fsdecode(os.fsencode(root) + b"/\xff")).write_bytes(b"")
    os.mkfifo(root / "pipe")
    assert [(entry.key, entry.size) for entry in store.list("").entries] == [("with space", 2)]
    assert store.list("", "with space").entries == ()


def test_a_huge_file_is_listed_but_not_read(store, root):
    with (root / "huge").open("wb") as file:
        file.truncate(MAX_BODY_BYTES + 1)
    assert store.list("").entries[0].key == "huge"
    with pytest.raises(BodyTooLarge, match="huge"):
        store.read("huge")


def test_times_come_from_the_clock_handed_in(tmp_path):
    clock = FakeClock(wall=5000.5)
    store = LocalStore(tmp_path, clock=clock, time_of="clock")
    store.create("key", b"")
    clock.advance(10)
    assert (store.read("key").modified, store.now()) == (5000.5, 5010.5)


def test_a_lock_held_for_too_long_is_reported(store, root, monkeypatch):
    etag = store.create("key", b"")
    store.put("key", b"")
    monkeypatch.setattr(aside, "_LOCK_SECONDS", 0.05)
    (lock,) = (path for path in (root / ".dfq-store").iterdir() if path.name.startswith("lock"))
    with lock.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(StoreBusy, match="locked by another process"):
            store.replace("key", b"x", etag)
    store.replace("key", b"x", etag)


def test_processes_count_without_losing_an_update(store, root):
    store.create("count", b"0")
    add = f"""
from dfq.store import Lost
from dfq.stores.local import LocalStore
store = LocalStore({str(root)!r})
for _ in range(25):
    while True:
        there = store.read("count")
        try:
            store.replace("count", b"%d" % (int(there.body) + 1), there.etag)
            break
        except Lost:
            pass
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    adding = [subprocess.Popen([sys.executable, "-c", add], env=environment) for _ in range(3)]
    assert [process.wait(60) for process in adding] == [0, 0, 0]
    assert store.read("count").body == b"75"


def test_a_disk_that_fails_after_the_write_leaves_it_unsure(store, monkeypatch):
    def failing(handle: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(5, "Input/output error")

    etag = store.create("key", b"")
    monkeypatch.setattr(os, "fsync", failing)
    for use in (
        lambda: store.create("other", b""),
        lambda: store.replace("key", b"x", etag),
        lambda: store.put("key", b"y"),
        lambda: store.delete("key"),
    ):
        with pytest.raises(StoreUnsure, match="check the disk"):
            use()


def test_a_root_that_can_t_be_made_is_reported(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreRefused, match="can't make"):
        LocalStore(tmp_path / "file" / "store")


def asides(root):
    names = (path.name for path in (root / ".dfq-store").iterdir())
    return sorted(name for name in names if name != "clock" and not name.startswith("lock-"))


DYING = """
import os, signal, sys
from dfq.stores import local
if sys.argv[2] == "live":
    def link(*_args, **_more):
        print("ready", flush=True)
        sys.stdin.read()
    os.link = link
else:
    os.link = lambda *_args, **_more: os.kill(os.getpid(), signal.SIGKILL)
local.LocalStore(sys.argv[1]).create("key", b"x" * 300_000)
"""


def child_of(root, how):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.Popen(
        [sys.executable, "-c", DYING, str(root), how],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


def test_what_a_killed_writer_left_aside_is_swept(store, root):
    with child_of(root, "die") as child:
        assert child.wait(60) == -9
    assert len(asides(root)) == 1
    assert store.sweep() == 1
    assert asides(root) == []
    assert store.list("").entries == ()


def test_a_writer_that_lives_is_not_swept_however_long_it_takes(store, root):
    with child_of(root, "live") as child:
        assert child.stdout.readline() == b"ready\n"
        (name,) = asides(root)
        os.utime(root / ".dfq-store" / name, (1, 1))
        assert store.sweep() == 0
        assert asides(root) == [name]
        child.stdin.close()
        assert child.wait(60) == 0
    assert asides(root) == []


def test_what_another_machine_left_aside_is_swept_once_it_is_old(store, root):
    name = "0badb007-1-0123456789abcdef"
    (root / ".dfq-store" / name).write_bytes(b"half")
    assert store.sweep() == 0
    now = store.now()
    os.utime(root / ".dfq-store" / name, (now - 3500, now - 3500))
    assert store.sweep() == 0
    os.utime(root / ".dfq-store" / name, (now - 3700, now - 3700))
    assert store.sweep() == 1
    assert asides(root) == []


def test_a_writer_whose_new_file_was_swept_before_it_was_locked_makes_another(
    store, root, monkeypatch
):
    swept, real = [], aside._is_locked

    def late(handle):
        if not swept:
            swept.append(True)
            (name,) = asides(root)
            (root / ".dfq-store" / name).unlink()
        return real(handle)

    monkeypatch.setattr(aside, "_is_locked", late)
    store.create("key", b"1")
    assert store.read("key").body == b"1"
    assert asides(root) == []


class DayOff:
    """This machine, with its clock set a day off."""

    def __init__(self, seconds):
        self._seconds = seconds

    def wall(self):
        return SYSTEM_CLOCK.wall() + self._seconds

    def boot(self):
        return SYSTEM_CLOCK.boot()


@pytest.mark.parametrize("off", [86_400.0, -86_400.0])
def test_the_clock_of_a_folder_is_its_file_system_s(root, off):
    store = LocalStore(root, clock=DayOff(off))
    assert abs(store.now() - SYSTEM_CLOCK.wall()) < 60
    for body in (b"small", b"x" * 300_000):
        store.put("key", body)
        assert abs(store.read("key").modified - SYSTEM_CLOCK.wall()) < 60


def test_a_folder_that_can_t_be_written_to_has_a_clock_all_the_same(store, monkeypatch):
    def refused(*_args):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, "pwrite", refused)
    assert abs(store.now() - SYSTEM_CLOCK.wall()) < 60
