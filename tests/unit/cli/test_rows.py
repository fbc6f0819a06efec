from __future__ import annotations

import io

import pytest

from dfq.cli.rows import BadRow, Row, format_of, read_rows

LIMIT = 10_000


def rows(data, kind, limit=LIMIT):
    return list(read_rows(io.BytesIO(data), kind, limit=limit))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.jsonl", "jsonl"),
        ("A.CSV", "csv"),
        ("a.ndjson", "jsonl"),
        ("b.usv", "usv"),
        ("-", "jsonl"),
    ],
)
def test_the_name_tells_the_format(name, kind):
    assert format_of(name, None) == kind


def test_json_lines_are_numbered_as_an_editor_does():
    assert rows(b"1\n\n \n2", "jsonl") == [Row(1, 1), Row(4, 2)]


def test_a_byte_order_mark_is_no_part_of_the_data():
    assert rows(b"\xef\xbb\xbf1\n", "jsonl") == [Row(1, 1)]
    assert rows(b"\xef\xbb\xbfa,b\n1,2\n", "csv") == [Row(2, {"a": "1", "b": "2"})]


def test_a_line_that_is_too_long_is_bad_and_the_next_one_is_read():
    found = rows(b'"' + b"x" * 50_000 + b'"\n7\n', "jsonl", limit=1_000)
    assert isinstance(found[0], BadRow)
    assert found[0].number == 1
    assert "longer than 1,000 bytes" in found[0].problem
    assert found[1:] == [Row(2, 7)]


def test_a_csv_record_may_span_lines_and_has_the_number_of_its_first():
    found = rows(b'a,b\n1,"x\ny"\n2,z\n', "csv")
    assert found == [Row(2, {"a": "1", "b": "x\ny"}), Row(4, {"a": "2", "b": "z"})]


@pytest.mark.parametrize("line", [b"1", b"1,2,3"])
def test_a_csv_record_with_other_columns_than_the_header_is_bad(line):
    found = rows(b"a,b\n" + line + b"\n5,6\n", "csv")
    assert isinstance(found[0], BadRow)
    assert found[0].number == 2
    assert found[1] == Row(3, {"a": "5", "b": "6"})


def test_a_header_that_names_a_column_twice_ends_it():
    (found,) = rows(b"a,a\n1,2\n", "csv")
    assert isinstance(found, BadRow)
    assert "'a' twice" in found.problem


def test_a_quote_that_is_never_closed_does_not_fill_the_memory():
    found = rows(b'a\n"x' + b"\nyyyyyyyyy" * 5_000, "csv", limit=1_000)
    assert isinstance(found[0], BadRow)
    assert "field limit" in found[0].problem


def test_tabs_separate_in_tsv():
    assert rows(b"a\tb\n1\t2\n", "tsv") == [Row(2, {"a": "1", "b": "2"})]


@pytest.mark.parametrize(
    "data",
    [
        "a␟b␞1␟2␞3␟4␞",
        "a␟b␞\n1␟2␞\n3␟4␞\n",
        "a␟b␟␞\n1␟2␟␞\n3␟4␟␞\n",
        "a\x1fb\x1e1\x1f2\x1e3\x1f4\x1e",
        "a␟b␞1␟2␞3␟4",
    ],
)
def test_usv_comes_with_symbols_or_controls_and_with_or_without_line_breaks(data):
    assert rows(data.encode(), "usv") == [
        Row(2, {"a": "1", "b": "2"}),
        Row(3, {"a": "3", "b": "4"}),
    ]


def test_an_escaped_separator_is_content():
    assert rows("a␟b␞x␛␟y␟p␛␞q␞".encode(), "usv") == [Row(2, {"a": "x␟y", "b": "p␞q"})]


def test_a_usv_cell_may_be_empty_and_may_hold_line_breaks_and_commas():
    assert rows("a␟b␞1\n,2␟␞".encode(), "usv") == [Row(2, {"a": "1\n,2", "b": ""})]


def test_a_usv_record_that_is_too_long_is_bad_and_the_next_one_is_read():
    data = "a␞".encode() + b"x" * 300_000 + "␞7␞".encode()
    found = rows(data, "usv", limit=1_000)
    assert isinstance(found[0], BadRow)
    assert found[1:] == [Row(3, {"a": "7"})]


def test_usv_separators_are_found_across_the_borders_of_reads():
    class Dribble(io.BytesIO):
        def read(self, _size=-1):
            return super().read(1)

    data = "a␟b␞1␛␞␟2␞3␟4␞".encode()
    assert list(read_rows(Dribble(data), "usv", limit=LIMIT)) == rows(data, "usv")


def test_usv_that_is_not_utf_8_is_bad():
    (found,) = rows("a␞".encode() + b"\xff" + "␞".encode(), "usv")
    assert isinstance(found, BadRow)
    assert "not UTF-8" in found.problem
