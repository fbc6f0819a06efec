"""The merge does what the plain model does, in whatever order and how often it is asked."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.models.index_model import IndexModel, Schema, written

TIMES = [
    "2026-01-01T00:00:00Z",
    "2026-01-01T00:00:00",
    "2026-01-01T01:00:00+01:00",
    "2026-01-01T00:00:00.000000001Z",
    "2026-01-01 00:00:00.1",
    "2025-12-31T23:59:59.999999999999Z",
    "2026-01-02T00:00:00,5-0330",
    "0001-01-01T00:00:00Z",
    "not a time",
    "",
]
ASSIGNED = st.characters(exclude_categories=["Cs", "Cn"])
#: Few keys, so that records meet; odd ones, so that they are tested.
KEYS = st.sampled_from(["a", "A", "b", "ä", "Ä.", " a. ", "a\nb", "a\x1fb", "\x1b", ""]) | st.text(
    ASSIGNED, max_size=2
)
ROWS = st.tuples(
    KEYS,
    st.text(ASSIGNED, max_size=4),
    st.sampled_from(TIMES),
    st.sampled_from(["", "", "", "2026", "x", " \r"]),
)
#: Records as dfq writes them, and as others might.
RECORDS = st.one_of(
    ROWS.map(lambda row: written([row])),
    ROWS.map(lambda row: written([row]).replace(b"\n", b"\x1e\n")),
    ROWS.map(lambda row: written([row]).replace(b"\n", b"\x1f\n")),
    ROWS.map(lambda row: written([row[:3]])),
    ROWS.map(lambda row: written([[*row, "more"]])),
    ROWS.map(lambda row: "\x1f".join(row).encode() + b"\n"),
    st.binary(max_size=6),
    st.sampled_from([b"\n", b"\x1e", b"\x1f\n", b"\x1f\x1f\x1f\n", b"a\x1f\xff\x1f2026-01-01\n"]),
)
BODIES = st.lists(RECORDS, max_size=8).map(b"".join)
RULES = st.sampled_from(["exact", "lower", "domain"])


def modelled(schema, bodies):
    model = IndexModel(schema)
    for body in bodies:
        model.put(body)
    return model


@settings(max_examples=400)
@given(st.lists(BODIES, max_size=5), RULES)
def test_a_merge_ends_in_the_bytes_of_the_model(new_merge, bodies, rule):
    schema = Schema(key_rule=rule)
    merge = new_merge(schema=schema)
    model = IndexModel(schema)
    refused = sum(model.put(body) for body in bodies)
    assert merge(*bodies) == model.compiled()
    assert merge.report["records"] == len(model.records)
    assert len(merge.report["rejects"]) == refused


@settings(max_examples=200)
@given(st.lists(st.lists(BODIES, max_size=3), max_size=4), st.randoms(), RULES)
def test_merging_in_any_order_and_in_any_lots_ends_in_the_same_bytes(new_merge, lots, chance, rule):
    schema = Schema(key_rule=rule)
    merge = new_merge(schema=schema)
    for lot in lots:
        merge(*lot)
    bodies = [body for lot in lots for body in lot]
    chance.shuffle(bodies)
    other = new_merge(schema=schema)
    assert other(*bodies) == (merge.shard.read_bytes() if lots else b"")


@settings(max_examples=200)
@given(st.lists(BODIES, min_size=1, max_size=4), RULES)
def test_merging_again_changes_nothing(new_merge, bodies, rule):
    merge = new_merge(schema=Schema(key_rule=rule))
    before = merge(*bodies)
    assert merge(*bodies) == before
    assert not merge.report["changed"]
    assert merge.report["taken"] == 0
    # And a shard is an inbox file like any other.
    assert new_merge(schema=merge.schema)(before) == before


@settings(max_examples=200)
@given(st.lists(BODIES, max_size=6), RULES, st.integers(1, 400))
def test_what_is_spilled_merges_into_the_same_bytes(new_merge, bodies, rule, memory):
    schema = Schema(key_rule=rule)
    held, spilled = new_merge(schema=schema), new_merge(schema=schema)
    assert spilled(*bodies, memory_bytes=memory) == held(*bodies)
    for count in ("taken", "superseded", "rejects", "normalised", "padded", "newest_ns"):
        assert spilled.report[count] == held.report[count]


@settings(max_examples=200)
@given(st.lists(BODIES, max_size=4), RULES)
def test_every_record_is_accounted_for(new_merge, bodies, rule):
    merge = new_merge(schema=Schema(key_rule=rule))
    merge(*bodies)
    merge(*bodies)
    records = sum(1 for body in bodies for raw in body.replace(b"\x1e", b"\n").split(b"\n") if raw)
    report = merge.report
    assert report["taken"] + report["superseded"] + len(report["rejects"]) == records
