from __future__ import annotations

import re
import stat

import click
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dfq.cli import progress
from dfq.cli.commands.usv import command as usv_command
from tests.models.index_model import written
from tests.unit.cli.test_docs import section

CSV = 'order,city\no-1,"Bern, ""old"" town"\no-2,"two\nlines"\n'
ROWS = [["order", "city"], ["o-1", 'Bern, "old" town'], ["o-2", "two\nlines"]]
OBJECTS = [dict(zip(ROWS[0], row, strict=True)) for row in ROWS[1:]]


@pytest.fixture
def orders(tmp_path):
    (tmp_path / "orders.usv").write_bytes(written(ROWS))
    (tmp_path / "orders.csv").write_text(CSV)
    return "orders.usv"


@pytest.fixture
def read(tmp_path):
    return lambda name: (tmp_path / name).read_bytes()


@pytest.mark.parametrize("name", usv_command.commands)
def test_every_command_is_documented_and_has_examples(run, name):
    found = usv_command.commands[name]
    assert found.examples
    for parameter in found.params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            assert parameter.help, parameter.name
            if parameter.name != "as_json":
                assert parameter.opts[-1] in section("usv"), parameter.opts[-1]
    ran = run("usv", name, "--help")
    assert (ran.code, found.examples[0] in ran.out) == (0, True)


def test_csv_becomes_usv_and_csv_again(run, orders, read):
    assert run("usv", "convert", "orders.csv", "new.usv").code == 0
    assert read("new.usv") == written(ROWS)
    assert run("usv", "convert", "new.usv", "again.csv").code == 0
    assert read("again.csv").decode() == CSV


@pytest.mark.parametrize("kind", ["csv", "tsv"])
@pytest.mark.parametrize("text", ["\r", "a\rb", "a\r", "\r\n", "a\nb\r", '"\r"', "\t,\r"])
def test_either_end_of_a_line_in_a_field_comes_through_csv(run, read, tmp_path, kind, text):
    rows = [["order", "city"], ["o-1", text], [text, "o-2"]]
    (tmp_path / "a.usv").write_bytes(written(rows))
    assert run("usv", "convert", "a.usv", f"a.{kind}").code == 0
    assert run("usv", "convert", f"a.{kind}", "again.usv").code == 0
    assert read("again.usv") == written(rows)


def test_columns_of_one_name_are_refused_where_a_name_stands_once(run, read, tmp_path):
    (tmp_path / "a.usv").write_bytes(
        written([["k", "v", "k", "v", "x"], ["1", "2", "3", "4", "5"]])
    )
    ran = run("usv", "convert", "a.usv", "a.jsonl")
    assert (ran.code, "called 'k', 'v'" in ran.err) == (65, True)
    assert not (tmp_path / "a.jsonl").exists()
    assert run("usv", "convert", "a.usv", "a.jsonl", "--no-header").code == 0
    assert read("a.jsonl").splitlines()[1] == b'["1","2","3","4","5"]'
    assert run("usv", "convert", "a.usv", "b.jsonl", "--columns", "x").code == 0
    assert run("usv", "convert", "a.usv", "a.csv").code == 0


def test_json_lines_become_usv_and_json_lines_again(run, read, tmp_path):
    lines = b"".join(orjson.dumps(row) + b"\n" for row in OBJECTS)
    (tmp_path / "a.jsonl").write_bytes(lines)
    assert run("usv", "convert", "a.jsonl", "new.usv").code == 0
    assert read("new.usv") == written(ROWS)
    assert run("usv", "convert", "new.usv", "again.jsonl").code == 0
    assert read("again.jsonl") == lines


TEXT = st.text(st.characters(exclude_categories=["Cs"]))
NAMES = st.lists(TEXT, min_size=2, max_size=3)


@settings(max_examples=60)
@given(NAMES, st.lists(st.lists(TEXT, min_size=2)))
def test_any_text_survives_usv_and_json_lines(run, tmp_path, names, rows):
    (tmp_path / "t.jsonl").write_bytes(
        b"".join(orjson.dumps(row[:2]) + b"\n" for row in [names[:2], *rows])
    )
    assert run("usv", "convert", "t.jsonl", "t.usv", "--force", "--no-header").code == 0
    ran = run("usv", "cat", "t.usv", "--as", "jsonl", "--no-header")
    assert [orjson.loads(line) for line in ran.out.split("\n")[:-1]] == [
        row[:2] for row in [names, *rows]
    ]


def test_values_that_are_no_texts_become_texts(run, tmp_path, read):
    (tmp_path / "a.jsonl").write_text('{"n": 1, "x": null, "l": [1, true]}\n{"n": 2.5}\n')
    run("usv", "convert", "a.jsonl", "a.csv")
    assert read("a.csv") == b'n,x,l\n1,,"[1,true]"\n2.5,,\n'


def test_a_name_that_the_first_object_lacks_is_told(run, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"n": 1}\n{"m": 1}\n')
    ran = run("usv", "convert", "a.jsonl", "a.csv")
    assert ran.code == 65
    assert "line 2: the first line has no 'm'" in ran.err
    assert not (tmp_path / "a.csv").exists()


def test_stdin_and_stdout_take_part(run):
    ran = run("usv", "convert", "-", "-", "--from", "tsv", "--to", "usv", stdin="a\tb\n1\t2\n")
    assert ran.out == "a\x1fb\n1\x1f2\n"


def test_without_a_header_rows_are_lists(run):
    words = ("usv", "convert", "-", "-", "--from", "csv", "--to", "jsonl", "--no-header")
    assert run(*words, stdin="1,2\n3,4\n").json_lines == [["1", "2"], ["3", "4"]]


def test_a_file_that_is_there_is_replaced_only_by_force(run, orders, read):
    before = read("orders.usv")
    ran = run("usv", "convert", "orders.csv", "orders.usv", "--columns", "city")
    assert ran.code == 65
    assert "--force" in ran.err
    assert read("orders.usv") == before
    run("usv", "convert", "orders.csv", "orders.usv", "--columns", "city", "--force")
    assert read("orders.usv") == written([[row[1]] for row in ROWS])


def test_a_bad_record_leaves_no_file_behind(run, tmp_path):
    (tmp_path / "a.usv").write_bytes(b"a\x1fb\n1\x1f2\x1f3\n")
    ran = run("usv", "convert", "a.usv", "a.csv")
    assert ran.code == 65
    assert "a.usv: record 2 has 3 fields where there are 2 columns" in ran.err
    assert [path.name for path in tmp_path.iterdir()] == ["a.usv"]


def test_short_rows_are_padded(run, tmp_path):
    (tmp_path / "a.usv").write_bytes(b"a\x1fb\x1f\n1\n2\x1f\n")
    ran = run("usv", "cat", "a.usv")
    assert ran.out.splitlines() == ["a,b,", "1,,", "2,,"]


def test_the_form_with_symbols_is_read(run, tmp_path):
    (tmp_path / "a.usv").write_text("a␟b␞\n1␟x\ny␞\n")
    assert run("usv", "cat", "a.usv", "--as", "jsonl").json_lines == [{"a": "1", "b": "x\ny"}]
    assert run("usv", "count", "a.usv").out.split() == ["2", "a.usv"]
    assert run("usv", "check", "a.usv").code == 0


def test_columns_are_chosen_by_name_or_number(run, orders):
    words = ("usv", "cat", orders, "--as", "jsonl", "--columns")
    assert run(*words, "city,order").json_lines == [
        {"city": row["city"], "order": row["order"]} for row in OBJECTS
    ]
    assert run(*words, "2").json_lines == [{"city": row["city"]} for row in OBJECTS]
    ran = run(*words, "town")
    assert ran.code == 65
    assert "there is no column 'town'; there are: order, city" in ran.err


def test_a_table_is_for_people(run, orders):
    assert run("usv", "head", orders).out.splitlines() == [
        "order  city",
        'o-1    Bern, "old" town',
        "o-2    two\\nlines",
    ]
    ran = run("usv", "head", orders, "-n", "1")
    assert len(ran.out.splitlines()) == 2
    assert "more than these 1" in ran.err
    assert run("usv", "head", orders, "--json").json_lines == OBJECTS


def test_the_first_rows_are_shown_though_the_rest_is_bad(run, tmp_path):
    (tmp_path / "a.usv").write_bytes(b"a\n" + b"1\n" * 100_000 + b"\xff\n")
    assert run("usv", "head", "a.usv").code == 0


def test_a_datapackage_beside_a_file_names_its_columns(run, tmp_path):
    package = {
        "resources": [
            {
                "dialect": {"header": False},
                "schema": {"fields": [{"name": "key"}, {"name": "value"}]},
            }
        ]
    }
    (tmp_path / "datapackage.json").write_bytes(orjson.dumps(package))
    (tmp_path / "shards").mkdir()
    (tmp_path / "shards" / "5e.usv").write_bytes(b"k\x1fv\n")
    words = ("usv", "cat", "shards/5e.usv", "--as", "jsonl")
    assert run(*words).json_lines == [{"key": "k", "value": "v"}]
    assert run(*words, "--no-header").json_lines == [["k", "v"]]


def test_a_check_names_every_bad_record(run, tmp_path):
    (tmp_path / "a.usv").write_bytes(b"a\x1fb\n1\n\xff\n1\x1f2\x1f3\n4")
    ran = run("usv", "check", "a.usv")
    assert ran.code == 65
    assert "a.usv: record 3: not UTF-8" in ran.err
    assert "a.usv: record 4: 3 fields where there are 2 columns" in ran.err
    assert "no line feed" in ran.err
    assert ran.out == "a.usv: 5 records, 2 bad, 2 short\n"
    found = run("usv", "--json", "check", "a.usv").json
    assert (found["records"], found["problems"][0]) == (5, {"record": 3, "problem": "not UTF-8"})
    assert run("usv", "check", "a.usv", "--width", "3").code == 65


def test_records_of_many_files_are_counted(run, orders):
    out = run("usv", "count", orders, orders).out
    assert re.findall(r"\d+", out) == ["3", "3", "6"]
    assert run("usv", "count", orders, "--json").json == {"file": orders, "records": 3}


@pytest.mark.parametrize("name", ["check", "count", "cat", "head"])
def test_a_file_that_is_not_there_is_told(run, name):
    ran = run("usv", name, "none.usv")
    assert ran.code == 66
    assert "none.usv" in ran.err


def test_a_new_file_can_be_read_by_whom_the_umask_allows(run, orders, tmp_path):
    run("usv", "convert", "orders.csv", "new.usv")
    assert stat.S_IMODE((tmp_path / "new.usv").stat().st_mode) & 0o600 == 0o600


def test_what_was_converted_is_told_as_json_unless_stdout_is_taken(run, read, tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    (told,) = run("usv", "convert", "a.csv", "b.usv", "--json").json_lines
    assert told == {"file": "b.usv", "format": "usv", "bytes": len(read("b.usv"))}
    refused = run("usv", "convert", "a.csv", "-", "--to", "jsonl", "--json")
    assert refused.code == 2
    assert "both want stdout" in refused.err


class ToldBar:
    """Notes what would be shown."""

    def __init__(self, told, *args, silent=False, **more):
        self._told = told
        self._told.append(["silent" if silent else "shown", args[0]])

    def update(self, done, total=None, note=""):
        self._told[-1].append(done)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        return None


@pytest.fixture
def told(monkeypatch):
    bars = []
    monkeypatch.setattr(progress, "progress", lambda *args, **more: ToldBar(bars, *args, **more))
    return bars


@pytest.mark.parametrize(("name", "doing"), [("check", "checking"), ("count", "counting")])
def test_long_work_on_files_shows_which_one_is_at_hand(
    run, orders, tmp_path, told, monkeypatch, name, doing
):
    (tmp_path / "b.usv").write_bytes(written(ROWS))
    assert run("usv", name, orders).code == 0
    assert told.pop()[0] == "silent"
    monkeypatch.setattr("dfq.cli.commands.usv.LONG_BYTES", 0)
    assert run("usv", name, orders, "b.usv").code == 0
    assert told == [["shown", f"{doing} {orders}", 0, 1], ["shown", f"{doing} b.usv", 1, 2]]


def test_printing_a_file_shows_how_far_it_is(run, orders, tmp_path, told):
    assert run("usv", "cat", orders).code == 0
    size = (tmp_path / orders).stat().st_size
    assert told[0][:2] == ["shown", f"reading {orders}"]
    assert told[0][-1] == size
