from __future__ import annotations

import pytest

import dfq


def test_the_queue_is_the_first_argument(run, url):
    assert run("stats", url).code == 0


def test_the_queue_may_be_an_option(run, url, queue):
    assert run("stats", "-q", url).code == 0
    assert run("push", "--queue", url, "{}").code == 0
    assert queue.stats().ready == 1


def test_the_queue_may_come_from_the_environment(run, url, queue, monkeypatch):
    monkeypatch.setenv("DFQ_QUEUE_URL", url)
    assert run("push", '{"a": 1}', "--id", "t").code == 0
    assert run("push", "a=1").code == 0
    assert run("stats", "--json").json["ready"] == 2
    assert run("show", "t", "--json").json["payload"] == {"a": 1}


def test_the_queue_may_come_from_a_file(run, url, queue, tmp_path):
    (tmp_path / "dfq.toml").write_text(f'queue_url = "{url}"\n')
    assert run("push", "{}").code == 0
    assert queue.stats().ready == 1


def test_a_queue_that_is_named_is_stronger_than_one_configured(run, url, queue, monkeypatch):
    monkeypatch.setenv("DFQ_QUEUE_URL", "memory://some-other")
    assert run("push", url, "{}", "--id", "t").code == 0
    assert run("stats", url, "--json").json["ready"] == 1
    assert run("show", url, "t").code == 0
    assert run("cancel", "-q", url, "t").code == 0


def test_no_queue_at_all_says_the_four_ways_to_name_one(run):
    for words in (["stats"], ["push", "{}"], ["show", "t"], ["requeue", "--all"], ["worker"]):
        ran = run(*words, *(["--exec", "cat"] if words == ["worker"] else []))
        assert ran.code == 2
        for way in ("first argument", "-q QUEUE", "DFQ_QUEUE_URL", "dfq.toml"):
            assert way in ran.err


def test_a_queue_given_twice_is_refused(run, url):
    assert run("stats", url, "-q", url).code == 2


def test_several_ids_are_ids_if_a_queue_is_configured(run, url, queue, monkeypatch):
    monkeypatch.setenv("DFQ_QUEUE_URL", url)
    queue.push(1, id="a")
    queue.push(2, id="b")
    assert run("cancel", "a", "b").code == 0
    assert queue.stats().failed == 2
    assert run("requeue", "--all").code == 0
    assert queue.stats().ready == 2


@pytest.mark.parametrize("word", ["{}", "[1", '"x"', "-", "12", "-1.5e3", "null", "a=b", "a.b:=1"])
def test_what_looks_like_a_payload_is_never_a_queue(word):
    from dfq.cli.payloads import push_argument_is_queue

    assert not push_argument_is_queue(word)


@pytest.mark.parametrize("word", ["jobs", "./1", "/srv/a=b", "memory://x", "file:///q", "nulls"])
def test_what_does_not_look_like_a_payload_is_a_queue(word):
    from dfq.cli.payloads import push_argument_is_queue

    assert push_argument_is_queue(word)


@pytest.mark.parametrize("command", ["stats", "ls", "doctor", "sweep", "top", "resume"])
def test_looking_at_a_folder_that_is_not_there_does_not_make_it(run, tmp_path, command):
    ran = run(command, "typo")
    assert ran.code == 66
    assert "no queue at 'typo'" in ran.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [
        *(["stats"], ["ls"], ["doctor"], ["sweep"], ["top", "--count", "1"], ["pause"], ["resume"]),
        *(["purge", "--yes"], ["show", "t"], ["requeue", "t"], ["cancel", "t"], ["bury", "t"]),
    ],
    ids=lambda words: words[0],
)
def test_a_folder_that_is_no_queue_is_not_made_one_by_looking(run, tmp_path, words):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").touch()
    ran = run(words[0], "./photos", *words[1:])
    assert ran.code == 66
    assert "no queue at './photos'" in ran.err
    assert [path.name for path in (tmp_path / "photos").iterdir()] == ["cat.jpg"]


@pytest.mark.parametrize("command", ["stats", "ls", "doctor", "sweep", "resume"])
def test_a_queue_with_nothing_but_a_policy_is_an_empty_one(run, tmp_path, command):
    assert run("init", "jobs").code == 0
    before = sorted((tmp_path / "jobs").rglob("*"))
    ran = run(command, "jobs")
    assert ran.code == 0, ran.err
    assert sorted((tmp_path / "jobs").rglob("*")) == before


def test_a_url_without_an_engine_is_told(run):
    ran = run("stats", "gopher://x")
    assert ran.code == 64
    assert "gopher" in ran.err


def test_the_library_and_the_command_line_open_the_same_queue(run, url):
    run("push", url, "1", "--id", "t")
    with dfq.open(url) as queue:
        assert queue.get("t") is not None
