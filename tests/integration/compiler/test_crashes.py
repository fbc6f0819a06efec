"""A compiler dies at every single call to the store; a fresh one finishes, unhelped."""

from __future__ import annotations

import pytest

from dfq.compiler.passes import Bounds
from dfq.stores.memory import MemoryStore
from dfq.testing import FakeClock
from tests.indexes import (
    WALL,
    drop,
    is_settled,
    keys_of,
    make_index,
    model_of,
    open_index,
    quarantined,
    row,
    shards_of,
)
from tests.indexes.mortal import Died, MortalStore

ONE, TWO = "5e", "a0"
BAD = (b"\x1fno key\x1f2023-11-01\n", b"no time\x1fBern\x1fnever\n", b"\xff\x1fx\x1f2023-11-01\n")


def world() -> tuple[MemoryStore, FakeClock, list[bytes]]:
    """An index with everything in it that a compile can meet; the records put so far."""
    clock = FakeClock(WALL)
    store = MemoryStore(clock=clock)
    index = make_index(store, clock=clock)
    first, second, third, fourth = keys_of(ONE, 4)
    (other,) = keys_of(TWO, 1)
    bodies = [
        drop(store, f"inbox/{ONE}/{'0' * 26}-{'1' * 16}.usv", row(first), row(second), row(third)),
        drop(store, f"inbox/{TWO}/{'0' * 26}-{'2' * 16}.usv", row(other)),
    ]
    index.compile()
    late, later = "2023-11-10T00:00:00Z", "2023-11-11T00:00:00Z"
    bodies += [
        # Own names, which go in batches, and a foreign one.
        drop(store, f"inbox/{ONE}/{'0' * 26}-{'3' * 16}.usv", row(first, "Rome", late)),
        drop(store, f"inbox/{ONE}/{'0' * 26}-{'4' * 16}.usv", row(second, "", late, late)),
        drop(store, f"inbox/{ONE}/by-hand.usv", row(second, "Oslo", "2023-11-05T00:00:00Z"), *BAD),
        # In the wrong inbox, and in none.
        drop(
            store, f"inbox/{TWO}/misplaced.usv", row(third, "Lima", later), row(other, "Pisa", late)
        ),
        drop(store, "inbox/flat.usv", row(fourth, "Cork", late), BAD[0]),
        drop(store, "seed.usv", row(first, "Older", "2023-11-05T00:00:00Z")),
    ]
    return store, clock, bodies


def compile_until_death(store: MortalStore, clock: FakeClock, seed: int) -> None:
    index = open_index(store, clock=clock, seed=seed)
    index.compile(bounds=Bounds(parallel=1))


def calls_of_a_whole_compile() -> list[str]:
    store, clock, _ = world()
    mortal = MortalStore(store)
    compile_until_death(mortal, clock, seed=3)
    return mortal.calls


CALLS = calls_of_a_whole_compile()
DEATHS = [
    pytest.param(number, when, id=f"{number}-{when}-{name}")
    for number, name in enumerate(CALLS, 1)
    for when in ("before", "amid", "after")
    if when != "amid" or name == "delete_many"
]


def test_a_whole_compile_uses_every_kind_of_call():
    assert {"create", "create_from", "replace_from", "fetch", "delete", "delete_many"} <= set(CALLS)


@pytest.mark.parametrize(("number", "when"), DEATHS)
def test_what_a_compiler_that_died_left_is_finished_by_the_next(number, when):
    store, clock, bodies = world()
    with pytest.raises(Died):
        compile_until_death(MortalStore(store, number, when), clock, seed=3)
    # Locks of the dead end by themselves.
    clock.advance(400)
    open_index(store, clock=clock, seed=4).compile(bounds=Bounds(parallel=1))
    assert shards_of(store) == model_of(*bodies)
    assert is_settled(store)
    assert b"".join(quarantined(store)).splitlines() == [
        line.rstrip(b"\n") for line in sorted([BAD[0], b"".join(BAD)]) for line in line.splitlines()
    ]


@pytest.mark.parametrize(("number", "when"), DEATHS)
def test_records_are_read_as_ever_at_every_moment_of_it(number, when):
    store, clock, _ = world()
    index = open_index(store, clock=clock, seed=5)
    first, second, third, _ = keys_of(ONE, 4)
    with pytest.raises(Died):
        compile_until_death(MortalStore(store, number, when), clock, seed=3)
    # Not the misplaced one: it is seen once it was moved.
    assert index.get(first)["city"] == "Rome"
    assert index.get(second) is None
    assert index.get(third)["city"] in ("Bern", "Lima")


@pytest.mark.parametrize("seed", range(8))
def test_a_row_of_compilers_that_all_die_loses_nothing(seed):
    store, clock, bodies = world()
    for number in range(2, 30, 3):
        try:
            compile_until_death(MortalStore(store, number + seed, "after"), clock, seed=seed)
        except Died:
            clock.advance(400)
    open_index(store, clock=clock, seed=4).compile(bounds=Bounds(parallel=1))
    assert shards_of(store) == model_of(*bodies)
    assert is_settled(store)
