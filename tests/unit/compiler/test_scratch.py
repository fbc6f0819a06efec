"""Folders for files on their way: gone when their users are, however those went."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from dfq.compiler import scratch
from dfq.compiler.scratch import scratch_folder, sweep_scratch
from dfq.stores.memory import MemoryStore
from tests.indexes import make_index

DYING = """
import os, signal, sys
from dfq.compiler.scratch import scratch_folder
with scratch_folder(sys.argv[1]) as path:
    open(f"{path}/shard", "wb").write(b"x")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def parent(tmp_path):
    return tmp_path


def names(parent):
    return sorted(path.name for path in parent.iterdir())


def die_in(parent):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    died = subprocess.run([sys.executable, "-c", DYING, str(parent)], env=environment, timeout=60)
    assert died.returncode == -signal.SIGKILL


def test_nothing_is_left_after_the_block(parent):
    with pytest.raises(KeyError), scratch_folder(str(parent)) as path:
        assert os.path.isdir(path)
        raise KeyError
    assert names(parent) == []


def test_what_the_killed_left_is_swept_and_what_the_living_have_is_not(parent):
    die_in(parent)
    with scratch_folder(str(parent)) as path:
        assert len(names(parent)) == 2
        assert sweep_scratch(str(parent)) == 1
        assert names(parent) == [os.path.basename(path)]


def test_an_index_sweeps_unasked_before_it_compiles_and_before_it_first_reads(parent):
    store = MemoryStore()
    index = make_index(store, scratch=str(parent))
    index.put({"domain": "a.example"})
    die_in(parent)
    index.get("a.example")
    assert names(parent) == []
    die_in(parent)
    index.compile()
    assert names(parent) == []


def test_nothing_else_is_swept(parent):
    (parent / "dfq-index-file").write_bytes(b"")
    (parent / "else").mkdir()
    (parent / "real").mkdir()
    (parent / "dfq-index-link").symlink_to(parent / "real")
    assert sweep_scratch(str(parent)) == 0
    assert names(parent) == ["dfq-index-file", "dfq-index-link", "else", "real"]


def test_a_folder_that_was_swept_before_it_was_locked_is_made_anew(parent, monkeypatch):
    real, swept = scratch._lock, []

    def late(handle):
        if not swept:
            swept.append(names(parent))
            (parent / swept[0][0]).rmdir()
        return real(handle)

    monkeypatch.setattr(scratch, "_lock", late)
    with scratch_folder(str(parent)) as path:
        assert os.path.isdir(path)
    assert names(parent) == []


def test_where_there_are_no_locks_there_is_scratch_and_no_sweeping(parent, monkeypatch):
    def refused(*_args):
        raise OSError(95, "Operation not supported")

    die_in(parent)
    monkeypatch.setattr(scratch.fcntl, "flock", refused)
    with scratch_folder(str(parent)) as path:
        assert os.path.isdir(path)
        assert sweep_scratch(str(parent)) == 0
    assert len(names(parent)) == 1
