"""Finding one record of a shard."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dfq import _core
from tests.models.index_model import Schema

KEYS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5))


@settings(max_examples=200)
@given(KEYS, KEYS, st.integers(0, 30))
def test_every_key_is_found_and_no_other(new_merge, row, there, not_there, size):
    merge = new_merge()
    records = {key: row(key, "x" * (size * len(key))) for key in there}
    merge(*records.values())
    for key in [*there, *not_there, ""]:
        found = _core.find_usv(str(merge.shard), key, 4, 0, "exact")
        assert found == (records[key][:-1] if key in records else None)


def test_records_of_any_length_are_found(merge, row):
    records = {f"{n:03d}": row(f"{n:03d}", "x" * (n * n * 20)) for n in range(100)}
    merge(*records.values())
    for key, record in records.items():
        assert _core.find_usv(str(merge.shard), key, 4, 0, "exact") == record[:-1]
    assert _core.find_usv(str(merge.shard), "0505", 4, 0, "exact") is None


def test_a_key_is_looked_for_as_it_is_kept(new_merge, row):
    merge = new_merge(schema=Schema(key_rule="domain"))
    merge(row("Example.com."))
    found = _core.find_usv(str(merge.shard), " EXAMPLE.com", 4, 0, "domain")
    assert found == row("example.com")[:-1]


def test_a_shard_that_is_not_there_has_no_record(tmp_path):
    assert _core.find_usv(str(tmp_path / "none"), "k", 4, 0, "exact") is None


@pytest.mark.parametrize("content", [b"k\x1fv", b"a\x1f\xff\n", b"\n", b"a\x1f1\x1f2\x1f3\x1f4\n"])
def test_damage_on_the_way_is_told(tmp_path, content):
    (tmp_path / "shard").write_bytes(content)
    with pytest.raises(_core.CoreError) as caught:
        _core.find_usv(str(tmp_path / "shard"), "k", 4, 0, "exact")
    assert caught.value.args[0] == "damaged"
