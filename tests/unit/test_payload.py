from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfq import InvalidTask
from dfq.payload import MAX_DEPTH, decode, encode

LIMIT = 1_000_000

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda children: (
        st.lists(children, max_size=5)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), children, max_size=5)
    ),
    max_leaves=20,
)


@given(json_values)
def test_whatever_is_json_comes_back_as_it_was(value):
    encoded = encode(value, limit=LIMIT)
    assert decode(encoded) == value
    assert json.loads(encoded) == value


@dataclasses.dataclass
class Point:
    x: int


class Colour(Enum):
    RED = 1


class Text(str):
    pass


@pytest.mark.parametrize(
    "value",
    [
        Point(1),
        Text("x"),
        {"when": datetime(2026, 1, 1, tzinfo=UTC)},
        [Decimal("1.5")],
        {1, 2},
        b"x",
        {1: "a"},
        2**64,
        -(2**63) - 1,
        "\ud800",
        {"\ud800": 1},
    ],
    ids=ascii,
)
def test_what_would_come_back_as_something_else_is_refused(value):
    with pytest.raises(InvalidTask, match="payload"):
        encode(value, limit=LIMIT)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")], ids=repr)
def test_numbers_json_does_not_have_are_refused_however_deep(bad):
    for value in (bad, [bad], {"a": [{"b": (1, bad)}]}, [None, bad]):
        with pytest.raises(InvalidTask, match="JSON can't hold"):
            encode(value, limit=LIMIT)
    assert encode([None, {"a": None}], limit=LIMIT) == b'[null,{"a":null}]'


def test_the_limit_is_on_the_bytes_of_json():
    assert encode("é" * 4, limit=10) == '"éééé"'.encode()
    with pytest.raises(InvalidTask, match=r"12 bytes.*takes 11"):
        encode("é" * 5, limit=11)


def test_the_message_names_what_was_too_large():
    with pytest.raises(InvalidTask, match="the result is"):
        encode("x" * 20, limit=10, what="result")


def nested(depth, wrap=lambda value: [value]):
    value: object = 1
    for _ in range(depth):
        value = wrap(value)
    return value


@pytest.mark.parametrize("wrap", [lambda v: [v], lambda v: {"k": v}, lambda v: (v,)])
def test_nesting_is_taken_to_a_depth_and_no_further(wrap):
    encode(nested(MAX_DEPTH, wrap), limit=LIMIT)
    for depth in (MAX_DEPTH + 1, 10_000):
        with pytest.raises(InvalidTask):
            encode(nested(depth, wrap), limit=LIMIT)


def test_a_wide_payload_is_not_a_deep_one():
    value = [[{}] for _ in range(5_000)]
    assert decode(encode(value, limit=LIMIT)) == value


def test_a_payload_that_doubles_at_every_level_is_refused_before_it_fills_the_memory():
    value: list = []
    for _ in range(60):
        value = [value, value]
    with pytest.raises(InvalidTask, match="1,000,000 bytes"):
        encode(value, limit=LIMIT)


def test_a_payload_that_contains_itself_is_refused():
    value: list = []
    value.append(value)
    with pytest.raises(InvalidTask):
        encode(value, limit=LIMIT)


@pytest.mark.parametrize("text", [b"", b"{", b"nope", b"\xff", b"NaN", b"1 2"], ids=repr)
def test_what_is_not_json_does_not_decode(text):
    with pytest.raises(ValueError):
        decode(text)
