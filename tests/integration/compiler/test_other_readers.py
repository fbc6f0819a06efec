"""DuckDB and polars read the shards as they are."""

from __future__ import annotations

import duckdb
import polars
import pytest

from dfq import Index

#: What makes a mess of CSV.
CITIES = ['Bern, "BE"', "x'y", "a\\b", "", "#c", "NULL", " spaced ", "ünï ☃", "1e5", "tab\there"]


@pytest.fixture
def index(tmp_path):
    with Index.create(tmp_path / "index", ["domain", "city"]) as index:
        index.put_many(
            {"domain": f"{number}.example", "city": CITIES[number % len(CITIES)]}
            for number in range(300)
        )
        index.delete("7.example")
        index.compile()
        yield index


def truth(index):
    return sorted((one["domain"], one["city"]) for one in index.scan())


def test_duckdb_reads_what_scan_reads(index, tmp_path):
    columns = dict.fromkeys(index.descriptor.columns, "VARCHAR")
    rows = duckdb.execute(
        f"SELECT domain, coalesce(city, '') FROM read_csv('{tmp_path}/index/shards/*.usv', "
        "delim = chr(31), header = false, quote = '', escape = '', auto_detect = false, "
        f"null_padding = true, columns = {columns}) WHERE coalesce(deleted_at, '') = ''"
    ).fetchall()
    assert sorted(rows) == truth(index)
    assert len(rows) == 299


def test_duckdb_reads_shards_from_before_and_after_a_column_was_added(index, tmp_path):
    index.grow("phone")
    index.put({"domain": "new.example", "phone": "031"})
    index.compile()
    columns = dict.fromkeys(index.descriptor.columns, "VARCHAR")
    (count,) = duckdb.execute(
        f"SELECT count(*) FROM read_csv('{tmp_path}/index/shards/*.usv', delim = chr(31), "
        "header = false, quote = '', escape = '', auto_detect = false, null_padding = true, "
        f"columns = {columns}) WHERE coalesce(deleted_at, '') = ''"
    ).fetchone()
    assert count == 300


def by_polars(index, tmp_path, *columns):
    frame = polars.scan_csv(
        f"{tmp_path}/index/shards/*.usv",
        separator="\x1f",
        has_header=False,
        quote_char=None,
        schema=dict.fromkeys(index.descriptor.columns, polars.String),
        missing_columns="insert",
    )
    living = frame.filter(polars.col("deleted_at").fill_null("") == "")
    return sorted(living.select(polars.col(*columns).fill_null("")).collect().rows())


def test_polars_reads_what_scan_reads(index, tmp_path):
    assert by_polars(index, tmp_path, "domain", "city") == truth(index)


def test_polars_reads_shards_from_before_and_after_a_column_was_added(index, tmp_path):
    index.grow("phone", "mail")
    index.put({"domain": "new.example", "phone": "031"})
    index.put({"domain": "1.example", "mail": "a@example"})
    index.compile()
    wanted = sorted((one["domain"], one["phone"], one["mail"]) for one in index.scan())
    assert by_polars(index, tmp_path, "domain", "phone", "mail") == wanted
    assert len(wanted) == 300
