"""`dfq index` and `dfq compile`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import orjson
import pytest

import dfq


@pytest.fixture
def shops(tmp_path):
    dfq.Index.create(tmp_path / "shops", ["domain", "city", "population:integer"]).close()
    return str(tmp_path / "shops")


def test_an_index_is_made_filled_compiled_and_read(run, tmp_path):
    made = run("index", "create", "shops", "domain", "city", "--key-rule", "domain")
    assert (made.code, "domain, city, updated_at, deleted_at" in made.out) == (0, True)
    assert run("index", "put", "shops", "domain=Example.com.", "city=Bern").out == "put 1 record\n"
    assert run("compile", "shops", "--dry-run").out.startswith("1 file of ")
    assert "compiled 1 shard from 1 file" in run("compile", "shops").out
    assert "Bern" in run("index", "get", "shops", "EXAMPLE.com").out
    assert run("index", "scan", "shops").json["city"] == "Bern"
    assert run("index", "delete", "shops", "example.com").code == 0
    gone = run("index", "get", "shops", "example.com")
    assert (gone.code, "no record" in gone.err) == (66, True)
    assert run("index", "get", "shops", "example.com", "--deleted", "--json").json["deleted_at"]


def test_making_the_same_index_again_changes_nothing_and_another_is_refused(run):
    for _ in range(2):
        assert run("index", "create", "shops", "domain", "city").code == 0
    refused = run("index", "create", "shops", "domain", "town")
    assert (refused.code, "only be added" in refused.err) == (78, True)
    assert run("index", "create", "shops", "--add", "phone").code == 0
    assert "phone" in run("index", "create", "shops", "--add", "fax", "--json").json["columns"]
    assert run("index", "create", "shops").code == 2
    assert run("index", "create", "shops", "a", "--add", "b").code == 2


def test_a_command_on_an_index_that_is_not_there_makes_none(run, tmp_path):
    for words in (("get", "nix", "a"), ("put", "nix", "a=1"), ("stats", "nix"), ("scan", "nix")):
        ran = run("index", *words)
        assert (ran.code, "dfq index create" in ran.err) == (66, True)
    assert run("compile", "nix").code == 66
    (tmp_path / "empty").mkdir()
    assert run("compile", "empty").code == 66


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("a.jsonl", '{"domain": "a", "city": "Bern"}\n{"domain": "b", "city": "Rome"}\n'),
        ("a.csv", "domain,city\na,Bern\nb,Rome\n"),
        ("a.tsv", "domain\tcity\na\tBern\nb\tRome\n"),
        ("a.usv", "domain\x1fcity\x1ea\x1fBern\x1eb\x1fRome\x1e"),
    ],
)
def test_rows_of_a_file_are_put(run, shops, tmp_path, name, body):
    (tmp_path / name).write_text(body)
    assert run("index", "put", shops, "--file", name, "--json").json == {
        "put": 2,
        "bad": 0,
        "stopped_at": None,
    }
    scanned = run("index", "scan", shops).json_lines
    assert {one["domain"]: one["city"] for one in scanned} == {"a": "Bern", "b": "Rome"}


@pytest.mark.parametrize("kind", ["jsonl", "csv", "usv"])
@pytest.mark.parametrize("city", ['x,"\ny', "x\ry", "\r", "\n\r"])
def test_what_scan_prints_put_reads(run, shops, tmp_path, kind, city):
    record = {"domain": "a", "city": city, "population": "7"}
    with dfq.Index(shops) as index:
        index.put(record)
        before = list(index.scan())
    out = run("index", "scan", shops, "--format", kind).out
    dfq.Index.create(tmp_path / "copy", ["domain", "city", "population:integer"]).close()
    assert run("index", "put", "copy", "-", "--format", kind, stdin=out).code == 0
    with dfq.Index(tmp_path / "copy") as copy:
        assert list(copy.scan()) == before


def test_a_bad_row_ends_it_and_what_stands_before_is_put(run, shops, tmp_path):
    rows = ['{"domain": "a"}', '{"domain": "b", "population": "x"}', '{"domain": "c"}']
    (tmp_path / "rows.jsonl").write_text("\n".join(rows))
    ran = run("index", "put", shops, "--file", "rows.jsonl")
    assert (ran.code, "row 2: population is 'x'" in ran.err) == (65, True)
    assert [one["domain"] for one in run("index", "scan", shops).json_lines] == ["a"]
    assert run("index", "put", shops, "--file", "rows.jsonl", "--skip-bad").out == "put 2 records\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["town=x"], "no column 'town'"),
        (["city=x"], "empty"),
        (["7"], "an object"),
        (["domain=a", "population:=1.5"], "no integer"),
        (["domain=a", "updated_at=soon"], "datetime"),
    ],
)
def test_a_record_that_does_not_fit_is_refused(run, shops, words, said):
    ran = run("index", "put", shops, *words)
    assert (ran.code, said in ran.err) == (65, True)
    assert run("index", "scan", shops).out == ""


def test_stats_verify_and_rebuild_tell_of_a_manifest_that_lies(run, shops, tmp_path):
    run("index", "put", shops, "domain=a")
    run("index", "compile", shops)
    assert run("index", "verify", shops).out == "nothing wrong was found\n"
    (tmp_path / "shops" / "manifest.json").write_text("{}")
    assert run("index", "stats", shops, "--json").json["records"] == 0
    assert "rebuild" in run("index", "stats", shops).out
    assert run("index", "verify", shops, "--json").json["level"] == "warning"
    assert run("index", "rebuild", shops).code == 0
    assert run("index", "stats", shops, "--json").json["records"] == 1


def test_a_damaged_shard_gives_exit_code_1(run, shops, tmp_path):
    run("index", "put", shops, "domain=a")
    run("compile", shops)
    (shard,) = (tmp_path / "shops" / "shards").glob("*.usv")
    shard.write_bytes(shard.read_bytes()[:-1])
    run("index", "put", shops, "domain=a")
    ran = run("compile", shops)
    assert (ran.code, "torn" in ran.err) == (1, True)
    assert run("index", "verify", shops).code == 1
    assert run("compile", shops, "--json").json["shards"][0]["outcome"] == "damaged"


def test_compile_names_what_it_moved_to_quarantine_and_what_it_leaves_alone(run, shops, tmp_path):
    inbox = tmp_path / "shops" / "inbox"
    inbox.mkdir()
    (inbox / "bad.usv").write_text("a\n")
    (inbox / "note.txt").write_text("a\n")
    ran = run("compile", shops)
    assert "moved to quarantine: record 1 of inbox/bad.usv" in ran.err
    assert "left alone: inbox/note.txt" in ran.err
    assert ran.code == 0


def test_contradictions_are_refused(run, shops):
    assert run("compile", shops, "--watch", "--once").code == 2
    assert run("compile", shops, "--parallel", "0").code == 2
    assert run("index", "put", shops).code == 2
    assert run("index", "put", shops, "a=1", "--file", "x.csv").code == 2
    assert run("index", "scan", shops, "--shard", "xyz").code == 2
    assert "did you mean 'compile'" in run("index", "compil", shops).err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_watch_compiles_what_comes_and_ends_cleanly(shops, number):
    with dfq.Index(shops) as index:
        process = subprocess.Popen(
            [sys.executable, "-m", "dfq", "compile", shops, "--watch", "--json", "--poll", "0.2"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={k: v for k, v in os.environ.items() if not k.startswith("DFQ_")},
        )
        try:
            for key in ("a", "b"):
                index.put({"domain": key})
                assert orjson.loads(process.stdout.readline())["files"] == 1
            process.send_signal(number)
            out, err = process.communicate(timeout=30)
        finally:
            process.kill()
        assert (process.returncode, out) == (0, b"")
        assert b"Traceback" not in err
        assert index.plan().locked == []
        assert {one["domain"] for one in index.scan()} == {"a", "b"}
