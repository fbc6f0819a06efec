"""Of several writers exactly one wins: create, replace and delete, many times over."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from dfq.errors import StoreBusy
from dfq.store import Lost, Store

ROUNDS = 8
#: A contended key of SeaweedFS waits for seconds.
ROUNDS_OF_A_SLOW_STORE = 2


def rounds(store: Store) -> range:
    return range(ROUNDS_OF_A_SLOW_STORE if store.name == "seaweedfs" else ROUNDS)


def race(writers: int, write: Callable[[int], object]) -> list[int]:
    """Let all writers go at once; who won."""
    gate = threading.Barrier(writers)

    def run(writer: int) -> int | None:
        gate.wait()
        try:
            won = write(writer)
        except (Lost, StoreBusy):
            return None
        return None if won is False else writer

    with ThreadPoolExecutor(writers) as pool:
        return [winner for winner in pool.map(run, range(writers)) if winner is not None]


@pytest.mark.parametrize("writers", [8, 32])
def test_one_of_many_creates_a_key(atomic_store, writers):
    for number in rounds(atomic_store):
        key = f"race/{number}/lease.json"
        winners = race(writers, lambda writer, key=key: atomic_store.create(key, b"%d" % writer))
        assert len(winners) == 1
        assert atomic_store.read(key).body == b"%d" % winners[0]


@pytest.mark.parametrize("writers", [8, 32])
def test_one_of_many_replaces_a_version(atomic_store, writers):
    etag = atomic_store.create("key", b"start")
    for number in rounds(atomic_store):
        body = f"{number} by %d"
        winners = race(
            writers,
            lambda writer, body=body, etag=etag: atomic_store.replace(
                "key", (body % writer).encode(), etag
            ),
        )
        assert len(winners) == 1
        there = atomic_store.read("key")
        assert there.body == (body % winners[0]).encode()
        etag = there.etag


@pytest.mark.parametrize("writers", [8, 32])
def test_one_of_many_deletes_a_version(atomic_store, writers):
    for number in rounds(atomic_store):
        etag = atomic_store.create("folder/key", b"%d" % number)
        winners = race(writers, lambda writer, etag=etag: atomic_store.delete("folder/key", etag))
        assert len(winners) == 1
        assert atomic_store.read("folder/key") is None


def test_a_version_is_replaced_or_deleted_never_both(atomic_store):
    for number in rounds(atomic_store):
        etag = atomic_store.create("key", b"%d" % number)

        def write(writer: int, etag: str = etag, number: int = number) -> object:
            if writer % 2:
                return atomic_store.delete("key", etag)
            return atomic_store.replace("key", b"%d by %d" % (number, writer), etag)

        (winner,) = race(8, write)
        there = atomic_store.read("key")
        assert (there is None) == bool(winner % 2)
        atomic_store.delete("key")


def test_no_update_is_lost(atomic_store):
    atomic_store.create("count", b"0")

    def add(writer: int) -> None:
        for _ in range(5):
            while True:
                there = atomic_store.read("count")
                try:
                    atomic_store.replace("count", b"%d" % (int(there.body) + 1), there.etag)
                    break
                except (Lost, StoreBusy):
                    continue

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, range(4)))
    assert atomic_store.read("count").body == b"20"
