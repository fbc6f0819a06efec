"""Shards are compiled side by side: the merge lets go of the interpreter, and threads use it."""

from __future__ import annotations

import sys
import threading

import pytest

from dfq.compiler import compiling
from dfq.compiler.merging import merge
from dfq.compiler.passes import Bounds
from dfq.stores.memory import MemoryStore
from dfq.testing import FakeClock
from tests.indexes import WALL, keys_of, make_index, outcomes
from tests.patience import patience


@pytest.fixture
def unforced():
    """No thread is made to hand over the interpreter: it goes on until it lets go of it."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1_000.0)
    yield
    sys.setswitchinterval(before)


def test_the_interpreter_is_free_while_the_core_merges(unforced, tmp_path):
    clock = FakeClock(WALL)
    index = make_index(MemoryStore(clock=clock), clock=clock)
    body = b"".join(b"%d\x1fBern\x1f2023-11-01T00:00:00Z\x1f\n" % n for n in range(200_000))
    seen = []
    # The merge may be done before anybody else gets up; not every time.
    for attempt in range(20):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        begun, done = threading.Event(), []

        def merging(folder=folder, begun=begun, done=done):
            begun.set()
            inbox = [("inbox/a.usv", body)]
            merge(
                index._site, index.descriptor, str(folder), shard_path=None, inbox=inbox, shard=None
            )
            done.append(True)

        thread = threading.Thread(target=merging)
        thread.start()
        begun.wait()
        seen.append(not done)
        thread.join()
        if any(seen):
            return
    raise AssertionError("nothing ran while the core merged")


@pytest.mark.parametrize("parallel", [2, 4])
def test_so_many_shards_are_merged_at_once(monkeypatch, parallel):
    clock = FakeClock(WALL)
    index = make_index(MemoryStore(clock=clock), clock=clock)
    shards = [f"{number:02x}" for number in range(parallel)]
    index.put_many({"domain": keys_of(shard, 1)[0]} for shard in shards)
    real, meeting = compiling.merge, threading.Barrier(parallel, timeout=patience(60))

    def together(*args, **more):
        # Each goes on only when all are here.
        meeting.wait()
        return real(*args, **more)

    monkeypatch.setattr(compiling, "merge", together)
    report = index.compile(bounds=Bounds(parallel=parallel))
    assert outcomes(report) == dict.fromkeys(shards, "compiled")
