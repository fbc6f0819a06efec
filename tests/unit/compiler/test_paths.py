"""What stands where."""

from __future__ import annotations

import pytest

from dfq.compiler.listing import list_index
from dfq.compiler.paths import is_own, kind_of, new_inbox_key, refiled_key
from dfq.stores.memory import MemoryStore
from dfq.testing import FakeClock, SeededChance


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ("inbox/5e/a.usv", ("waiting", "5e")),
        ("inbox/5e/example.com.usv", ("waiting", "5e")),
        ("inbox/a.usv", ("flat", "")),
        ("example.com.usv", ("flat", "")),
        ("shards/5e.usv", ("shard", "5e")),
        ("shards/5e.lock", ("lock", "5e")),
        ("inbox/5E/a.usv", ("odd", "")),
        ("inbox/5e/deep/a.usv", ("odd", "")),
        ("inbox/5e/a.csv", ("odd", "")),
        ("inbox/with space.usv", ("odd", "")),
        ("münchen.de.usv", ("odd", "")),
        ("datapackage.json", ("other", "")),
        ("shards/5e.usv.bak", ("other", "")),
        ("other/5e.usv", ("other", "")),
    ],
)
def test_a_key_tells_what_it_is(key, kind):
    assert kind_of(key) == kind


def test_only_names_that_dfq_gave_are_its_own():
    made = new_inbox_key("5e", FakeClock(), SeededChance(1))
    assert is_own(made)
    assert is_own(refiled_key("5e", "ab" * 32))
    for other in ("inbox/5e/a.usv", made[:-5] + "x.usv", made.replace("inbox/5e/", "inbox/"), ""):
        assert not is_own(other)
    assert new_inbox_key("5e", FakeClock(), SeededChance(2)) != made


def test_a_long_listing_goes_on_where_it_ended():
    store = MemoryStore()
    for number in range(2_500):
        store.put(f"inbox/5e/{number:04d}.usv", b"")
    for number in range(1_500):
        store.put(f"quarantine/{number:04d}/reason.json", b"")
    store.put("shards/5e.usv", b"")
    first = list_index(store, limit=1_000)
    assert (first.files(), first.complete) == (1_000, False)
    second = list_index(store, first.rest, limit=10_000)
    assert (second.files(), second.complete, list(second.shards)) == (1_500, True, ["5e"])
    assert list_index(store, quarantine=True).quarantined == 1_500


def test_what_is_in_quarantine_does_not_make_a_pass_dearer():
    store = MemoryStore()
    for number in range(5_000):
        store.put(f"quarantine/{number:04d}/reason.json", b"")
    before = store.requests.snapshot()["list"]
    list_index(store)
    assert store.requests.snapshot()["list"] - before == 2
