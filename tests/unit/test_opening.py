from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import dfq
from dfq.opening import split
from tests.patience import patience


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("/srv/q", "/srv/q"),
        ("q", "q"),
        ("./q/enrich", "./q/enrich"),
        (Path("/srv/q"), "/srv/q"),
        ("file:///srv/q", "/srv/q"),
        ("FILE:///srv/q", "/srv/q"),
        ("file://localhost/srv/q", "/srv/q"),
        ("file:///srv/a%20b%2525", "/srv/a b%25"),
        ("file:///srv/z%C3%BCrich", "/srv/zürich"),
        ("/srv/100%", "/srv/100%"),
        ("odd:name", "odd:name"),
        (Path("s3://not-a-url"), "s3:/not-a-url"),
    ],
    ids=ascii,
)
def test_a_path_or_a_file_url_is_a_folder(given, path):
    assert split(given) == ("file", path)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("", "empty"),
        ("file://", "no folder"),
        ("file:///", "no folder"),
        ("file://srv/q", "host 'srv'.*file:///srv/q"),
        ("file:///srv/q?x=1", "%3F"),
        ("file:///srv/q#x", "%23"),
        ("file:///srv/100%", "%25"),
        ("file:///srv/%zz", "%25"),
        ("file:///srv/%00", "NUL"),
        ("/srv/\0", "NUL"),
        ("file:///srv/%FF", r"'/srv/\\xff'.*not UTF-8"),
        (os.fsdecode(b"/srv/\xff"), r"'/srv/\\xff'.*not UTF-8"),
        (Path(os.fsdecode(b"q\xff")), r"'q\\xff'.*not UTF-8"),
        ("postgres://host/db", "postgres engine is not part of this version.*s3 and memory"),
        ("redis://host", "redis engine is not part"),
        ("sqs://queue", "sqs engine is not part"),
        ("http://host/q", "http engine is not part"),
        ("fiel:///srv/q", "'fiel'.*'file'"),
        ("memroy://x", "'memroy'.*'memory'"),
        ("gopher://x", "'gopher'.*known: .*file"),
    ],
    ids=ascii,
)
def test_a_url_that_no_engine_answers_to_says_what_to_do(given, said):
    with pytest.raises(dfq.InvalidURL, match=said):
        split(given)


def test_a_relative_path_in_a_folder_that_is_not_utf_8_says_what_to_do(tmp_path, monkeypatch):
    odd = tmp_path / os.fsdecode(b"\xff")
    odd.mkdir()
    monkeypatch.chdir(odd)
    with pytest.raises(dfq.InvalidURL, match="not UTF-8"):
        split("q")


@pytest.mark.parametrize("given", [None, 1, b"/srv/q"], ids=repr)
def test_a_queue_is_opened_by_a_string_or_a_path(given):
    with pytest.raises(dfq.InvalidURL, match="str or a Path"):
        dfq.open(given)


@pytest.mark.parametrize("name", ["a/b", "a b", "a?b", "é"])
def test_a_memory_queue_has_a_plain_name(name):
    with pytest.raises(dfq.InvalidURL, match="valid name"):
        dfq.open(f"memory://{name}")


def test_a_memory_queue_is_opened_with_its_policy():
    policy = dfq.Policy(max_attempts=2)
    assert dfq.open("memory://", policy=policy).policy is policy


def test_importing_dfq_stays_light():
    heavy = {"asyncio", "logging", "subprocess", "click", "rich", "tomllib", "importlib.metadata"}
    heavy |= {"random", "socket", "dfq.engines.file", "dfq.handler", "dfq.queue", "dfq.testing"}
    code = f"import dfq, sys; print(*({heavy!r} & set(sys.modules)))"
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=patience(60),
        check=True,
    )
    assert run.stdout.split() == []


def test_everything_exported_is_there():
    for name in dfq.__all__:
        if name != "__version__":
            assert getattr(dfq, name) is not None
        assert name in dir(dfq)
    with pytest.raises(AttributeError, match="nonsense"):
        _ = dfq.nonsense


@pytest.mark.parametrize(
    "before", ["pass", "import dfq.task", "import dfq.worker, dfq.engines.file"]
)
def test_dfq_task_is_the_decorator_whatever_was_imported_before(before):
    code = f"{before}; import dfq; print(dfq.task is __import__('dfq.handler').handler.task)"
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=patience(60),
        check=True,
    )
    assert run.stdout == "True\n"
