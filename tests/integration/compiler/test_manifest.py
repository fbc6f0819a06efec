"""The manifest is derived: whatever becomes of it, compilers go on and it comes right again."""

from __future__ import annotations

import pytest

from dfq.compiler import passes, verifying
from dfq.compiler.passes import Bounds, Pass
from dfq.errors import QueueUnavailable
from dfq.store import MAX_BODY_BYTES
from dfq.stores.local import LocalStore
from dfq.stores.memory import MemoryStore
from dfq.testing import FakeClock
from tests.indexes import WALL, keys_of, make_index, open_index

INLINE = Bounds(parallel=1)
FIRST, SECOND = keys_of("5e", 2)
(OTHER,) = keys_of("a0", 1)


@pytest.fixture
def clock():
    return FakeClock(WALL)


@pytest.fixture
def store(clock):
    store = MemoryStore(clock=clock)
    make_index(store, clock=clock)
    return store


@pytest.mark.parametrize("use", ["compile", "rebuild"])
def test_a_manifest_larger_than_any_body_is_written_anew(tmp_path, use):
    store = LocalStore(tmp_path / "index")
    index = make_index(store)
    index.put({"domain": FIRST})
    index.compile(bounds=INLINE)
    with (tmp_path / "index" / "manifest.json").open("r+b") as file:
        file.truncate(MAX_BODY_BYTES + 1)
    index.put({"domain": SECOND})
    if use == "compile":
        assert index.compile(bounds=INLINE).files == 1
    else:
        assert index.rebuild() == []
    assert (index.stats().records, index.stats().stale) == (2 if use == "compile" else 1, [])


def test_a_rebuild_that_does_not_get_through_says_so(store, clock, monkeypatch):
    index = open_index(store, clock=clock)
    index.put({"domain": FIRST})
    index.compile(bounds=INLINE)
    monkeypatch.setattr(verifying, "update", lambda *_args, **_more: False)
    (finding,) = index.rebuild()
    assert (finding.level, finding.subject) == ("error", "manifest.json")


def test_a_compiler_that_tells_late_does_not_overrule_who_compiled_after_it(
    store, clock, monkeypatch
):
    slow, quick = open_index(store, clock=clock, seed=3), open_index(store, clock=clock, seed=4)
    slow.put({"domain": FIRST})
    real = Pass._note

    def late(self, descriptor, compiled):
        monkeypatch.setattr(Pass, "_note", real)
        clock.advance(1)
        quick.put({"domain": SECOND})
        quick.compile(bounds=INLINE)
        clock.advance(1)
        real(self, descriptor, compiled)

    monkeypatch.setattr(Pass, "_note", late)
    slow.compile(bounds=INLINE)
    assert (quick.stats().records, quick.stats().stale) == (2, [])


def test_what_was_compiled_before_the_store_went_away_is_told(store, clock, monkeypatch):
    index = open_index(store, clock=clock)
    index.put_many([{"domain": FIRST}, {"domain": OTHER}])
    real, done = passes.compile_shard, []

    def one_only(*args):
        if done:
            raise QueueUnavailable("away")
        done.append(real(*args))
        return done[0]

    monkeypatch.setattr(passes, "compile_shard", one_only)
    with pytest.raises(QueueUnavailable):
        index.compile(bounds=INLINE)
    assert (index.stats().records, index.stats().stale) == (1, [])
