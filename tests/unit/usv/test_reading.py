"""The bindings that read and write USV."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dfq import _core
from tests.models.index_model import written

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
FIELDS = TEXT | st.text("\x1b\x1e\x1f\n\rnruse", max_size=6)
#: A record of one empty field reads as two where the number of columns is not known.
ROWS = st.lists(st.lists(FIELDS, min_size=1).filter(lambda row: row != [""]))


def read_all(reader, limit=3):
    rows = []
    while lot := reader.read(limit):
        rows += lot
    return rows


@settings(max_examples=300)
@given(ROWS)
def test_any_text_survives_the_round_trip(rows):
    body = _core.join_usv(rows)
    assert body == written(rows)
    assert _core.split_usv(body) == rows


@settings(max_examples=100)
@given(ROWS)
def test_any_text_survives_a_file(tmp_path_factory, rows):
    path = str(tmp_path_factory.mktemp("usv") / "a.usv")
    writer = _core.UsvWriter(path)
    writer.write(rows[:2])
    writer.write(rows[2:])
    closed = writer.close()
    body = written(rows)
    assert closed == {
        "records": len(rows),
        "bytes": len(body),
        "sha256": hashlib.sha256(body).hexdigest(),
    }
    reader = _core.UsvReader(path)
    assert read_all(reader) == rows
    assert (reader.records_read, reader.bytes_read) == (len(rows), len(body))
    assert _core.count_usv(path) == _core.check_usv(path)["records"] == len(rows)


@settings(max_examples=200)
@given(st.binary(max_size=60), st.integers(1, 9), st.booleans())
def test_bytes_read_the_same_however_they_come(tmp_path_factory, data, size, visible):
    path = tmp_path_factory.mktemp("usv") / "a.usv"
    path.write_bytes(data)

    def drained(reader):
        found = []
        while True:
            try:
                rows = reader.read(2)
            except ValueError as error:
                found.append(str(error))
                continue
            if not rows:
                return found
            found += rows

    fed = _core.UsvFeed(visible=visible)
    from_feed = []
    for piece in [*(data[at : at + size] for at in range(0, len(data), size)), b""]:
        fed.feed(piece)
        from_feed += drained(fed)
    reader = _core.UsvReader(str(path), visible=visible)
    assert from_feed == drained(reader)
    assert fed.records_read == reader.records_read
    if not visible:
        assert _core.count_usv(str(path)) == reader.records_read


def test_a_bad_record_is_an_error_with_its_number_and_reading_goes_on(tmp_path):
    path = tmp_path / "a.usv"
    path.write_bytes(b"a\nb\xff\nc\n" + b"x" * 100 + b"\nd\n")
    reader = _core.UsvReader(str(path), max_record_bytes=50)
    assert reader.read(10) == [["a"]]
    assert reader.records_read == 1
    with pytest.raises(ValueError, match="record 2 is not UTF-8"):
        reader.read(10)
    assert reader.read(10) == [["c"]]
    with pytest.raises(ValueError, match="record 4 is longer than 50 bytes"):
        reader.read(10)
    assert reader.read(10) == [["d"]]
    assert reader.read(10) == []


def test_a_bad_record_of_a_body_is_named():
    with pytest.raises(ValueError, match="record 2 is not UTF-8"):
        _core.split_usv(b"a\n\xff\n")


def test_all_ends_of_records_are_read():
    assert _core.split_usv(b"a\x1fb\x1e\nc\x1ed\n\n\r\n") == [["a", "b"], ["c"], ["d"], ["\r"]]


def test_symbols_are_text_unless_asked_for():
    body = "a␟b␞\nc␟d␞\n".encode()
    assert _core.split_usv(body) == [["a␟b␞"], ["c␟d␞"]]
    assert _core.split_usv(body, visible=True) == [["a", "b"], ["c", "d"]]


def test_a_row_without_a_field_is_refused(tmp_path):
    with pytest.raises(ValueError, match="record 2 has no field"):
        _core.join_usv([["a"], []])
    writer = _core.UsvWriter(str(tmp_path / "a"))
    with pytest.raises(_core.CoreError, match="no field"):
        writer.write([[]])


def test_what_is_no_text_is_refused():
    with pytest.raises(UnicodeEncodeError):
        _core.join_usv([["\ud800"]])


def test_a_writer_is_closed_once(tmp_path):
    writer = _core.UsvWriter(str(tmp_path / "a"))
    writer.close()
    with pytest.raises(ValueError, match="closed"):
        writer.close()
    with pytest.raises(ValueError, match="closed"):
        writer.write([["a"]])


@pytest.mark.parametrize("make", [_core.UsvReader, _core.count_usv, _core.check_usv])
def test_only_regular_files_are_read(tmp_path, make):
    (tmp_path / "real").write_bytes(b"a\n")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for name, kind in (("link", "invalid"), ("none", "not_found"), ("", "invalid")):
        with pytest.raises(_core.CoreError) as caught:
            make(str(tmp_path / name))
        assert caught.value.args[0] == kind


def test_a_check_tells_what_is_wrong(tmp_path):
    path = tmp_path / "a.usv"
    path.write_bytes(b"a\x1fb\na\nx\x1fy\x1fz\n\xff\n")
    assert _core.check_usv(str(path), 2) == {
        "records": 4,
        "bytes": 14,
        "least_fields": 1,
        "most_fields": 3,
        "short": 1,
        "bad": 2,
        "problems": [(3, "3 fields where there are 2 columns"), (4, "not UTF-8")],
        "unended": False,
    }


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("2026-11-18T09:03:00Z", "2026-11-18 10:03:00+01:00"),
        ("20261118T0903Z", "2026-W47-3T09:03"),
        ("2026-11-18", "2026-322T00"),
    ],
)
def test_times_of_any_iso_form_are_read(text, same):
    assert _core.parse_time_ns(text) == _core.parse_time_ns(same)
    assert _core.parse_time_ns("yesterday") is None


def test_a_key_has_one_normal_form():
    assert _core.normal_key(" Ä.B.. ", "domain") == "ä.b"
    assert _core.normal_key("Ä", "lower") == "ä"
    assert _core.normal_key("Ä", "exact") == "Ä"
    with pytest.raises(ValueError, match='no key rule "x"'):
        _core.normal_key("k", "x")
