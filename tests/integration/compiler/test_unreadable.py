"""Files that a compiler may not read, or would have to read whole: named, and no others suffer."""

from __future__ import annotations

import os

import pytest

from dfq.compiler import refile
from dfq.compiler.passes import Bounds
from dfq.errors import StoreRefused
from dfq.stores.local import LocalStore
from tests.indexes import drop, keys_of, make_index, model_of, open_index, row, shards_of

ONE = "5e"
FIRST, SECOND, THIRD = keys_of(ONE, 3)
INLINE = Bounds(parallel=1)
OLD, OLDER = "2023-10-01T00:00:00Z", "2023-09-01T00:00:00Z"


@pytest.fixture
def store(tmp_path):
    return LocalStore(tmp_path / "index")


@pytest.fixture
def index(store):
    return make_index(store)


@pytest.fixture
def forbid(monkeypatch):
    """Let nobody open files of this name: the tests may run as root, who may open any."""
    names, real = set(), os.open

    def opening(path, *args, **options):
        if path in names:
            raise PermissionError(13, "Permission denied", path)
        return real(path, *args, **options)

    monkeypatch.setattr(os, "open", opening)
    return names


@pytest.mark.parametrize("place", ["inbox/", f"inbox/{ONE}/", ""])
def test_a_file_that_may_not_be_read_is_named_and_the_others_are_compiled(
    store, index, forbid, place
):
    body = drop(store, f"inbox/{ONE}/good.usv", row(FIRST))
    drop(store, f"{place}secret.usv", row(SECOND))
    forbid.add("secret.usv")
    key = f"{place}secret.usv"
    assert index.plan().ignored == [key]
    report = index.compile(bounds=INLINE)
    assert (report.ignored, report.files) == ([key], 1)
    assert shards_of(store) == model_of(body)
    assert [(one.level, one.subject) for one in index.verify()] == [("error", key)]
    assert index.stats().waiting_files == 0
    assert [one["domain"] for one in index.scan()] == [FIRST]
    forbid.clear()
    index.compile(bounds=INLINE)
    assert index.get(SECOND)["city"] == "Bern"


def test_an_old_deletion_is_kept_while_a_file_that_may_not_be_read_may_be_older(
    store, index, forbid
):
    drop(store, f"inbox/{ONE}/mark.usv", row(FIRST, "", OLD, OLD))
    drop(store, "inbox/secret.usv", row(FIRST, "Rome", OLDER))
    forbid.add("secret.usv")
    index.compile(bounds=INLINE)
    forbid.clear()
    index.compile(bounds=INLINE)
    assert index.get(FIRST) is None


def test_a_shard_that_may_not_be_read_is_never_taken_for_none(store, index, forbid):
    index.put({"domain": FIRST})
    index.compile(bounds=INLINE)
    forbid.add(f"{ONE}.usv")
    with pytest.raises(StoreRefused, match=f"shards/{ONE}.usv"):
        list(index.scan())
    (finding,) = index.verify()
    assert (finding.level, finding.subject) == ("error", f"shards/{ONE}.usv")
    index.put({"domain": SECOND})
    with pytest.raises(StoreRefused, match=f"shards/{ONE}.usv"):
        index.compile(bounds=INLINE)
    forbid.clear()
    index.compile(bounds=INLINE)
    assert sorted(one["domain"] for one in index.scan()) == sorted([FIRST, SECOND])


def test_links_and_pipes_in_the_inbox_are_named_by_every_compile(store, index, tmp_path):
    inbox = tmp_path / "index" / "inbox" / ONE
    inbox.mkdir(parents=True)
    (inbox / "link.usv").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "index" / "inbox" / "pipe.usv")
    named = [f"inbox/{ONE}/link.usv", "inbox/pipe.usv"]
    assert index.compile(bounds=INLINE).ignored == named
    assert index.plan().ignored == named


def test_what_is_misplaced_is_read_line_by_line(store, index, monkeypatch):
    class ByLine:
        """A file that hands out no more than a line at once."""

        def __init__(self, file):
            self._file = file

        def __enter__(self):
            return self

        def __exit__(self, *exc):
            self._file.close()

        def __getattr__(self, name):
            assert name in ("seek", "readline")
            return getattr(self._file, name)

    lines = [row(key, at=f"2023-11-01T00:00:{n % 60:02d}Z") for n in range(300) for key in (FIRST,)]
    body = drop(store, "inbox/00/misplaced.usv", *lines)
    real, opened = refile.open_file, []

    def opening(path):
        if "rejects" not in path:
            return real(path)
        opened.append(path)
        return ByLine(real(path))

    monkeypatch.setattr(refile, "open_file", opening)
    report = index.compile(bounds=INLINE)
    assert opened
    assert sum(one.refiled for one in report.shards) == 300
    assert shards_of(store) == model_of(body)
    assert open_index(store).plan().waiting == {}
