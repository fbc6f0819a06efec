"""datapackage.json: what an index holds, and how that may change."""

from __future__ import annotations

import orjson
import pytest

from dfq.compiler.descriptor import Field, new_descriptor, read_descriptor
from dfq.errors import InvalidIndex


def test_a_descriptor_is_read_as_it_was_written():
    made = new_descriptor(["domain", "visits:integer"], key_rule="domain", keep_deleted_days=7)
    read = read_descriptor(made.dumps("nonce"), "here")
    assert read == made
    assert read.columns == ("domain", "visits", "updated_at", "deleted_at")
    assert (read.key, read.fields[1]) == ("domain", Field("visits", "integer"))


def test_it_is_a_tabular_data_package_that_says_how_the_files_are_written():
    package = orjson.loads(new_descriptor(["domain"]).dumps("nonce"))
    assert package["profile"] == "tabular-data-package"
    (resource,) = package["resources"]
    assert resource["dialect"]["delimiter"] == "\x1f"
    assert resource["dialect"]["header"] is False
    assert resource["schema"]["primaryKey"] == "domain"


def test_columns_are_added_at_the_end_and_what_others_wrote_is_kept():
    raw = orjson.loads(new_descriptor(["domain"]).dumps("nonce"))
    raw["title"] = "Domains"
    raw["resources"][0]["schema"]["fields"][0]["description"] = "its name"
    there = read_descriptor(orjson.dumps(raw), "here")
    grown = read_descriptor(there.grown(["phone", "age:integer"]).dumps("other"), "here")
    assert grown.columns == ("domain", "updated_at", "deleted_at", "phone", "age")
    grown.check_grown_from(there)
    assert grown.raw["title"] == "Domains"
    assert grown.raw["resources"][0]["schema"]["fields"][0]["description"] == "its name"
    assert grown.schema_sha256 != there.schema_sha256


@pytest.mark.parametrize(
    "other",
    [
        new_descriptor(["domain"]),
        new_descriptor(["domain", "town"]),
        new_descriptor(["city", "domain"], key="domain"),
        new_descriptor(["domain", "city"], key="city"),
        new_descriptor(["domain", "city"], key_rule="lower"),
        new_descriptor(["domain", "city:integer"]),
        new_descriptor(["domain", "city"], updated_at="at"),
    ],
)
def test_any_other_change_is_refused(other):
    there = new_descriptor(["domain", "city"])
    with pytest.raises(InvalidIndex):
        other.check_grown_from(there)


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        ([], {}, "a column at least"),
        (["a", "a"], {}, "twice"),
        (["a\x1f"], {}, "no name"),
        ([""], {}, "no name"),
        ([" a"], {}, "no name"),
        (["a"], {"key": "b"}, "not there"),
        (["a"], {"key": "updated_at"}, "three columns"),
        (["a"], {"key_rule": "upper"}, "key_rule"),
        (["a"], {"keep_deleted_days": -1}, "keep_deleted_days"),
        (["a"] + [str(n) for n in range(10_000)], {}, "too many"),
    ],
)
def test_what_can_be_no_index_is_refused(columns, options, said):
    with pytest.raises(InvalidIndex, match=said):
        new_descriptor(columns, **options)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b'{"dfq": {"version": 2}, "resources": [{"schema": {}}]}',
        b'{"dfq": {"version": 1}, "resources": [{"schema": {"fields": 7, "primaryKey": "a"}}]}',
        b'{"dfq": {"version": 1}, "resources": []}',
    ],
)
def test_a_damaged_one_is_named(body):
    with pytest.raises(InvalidIndex, match="here"):
        read_descriptor(body, "here")
