from __future__ import annotations

import pytest

from dfq.cli import loading


def payloads(queue):
    return [record.task.payload for record in queue.list()]


def test_a_json_argument_becomes_a_task_and_its_id_is_printed(run, url, queue):
    ran = run("push", url, '{"a": [1, null]}')
    assert ran.code == 0
    record = queue.get(ran.out.strip())
    assert record is not None
    assert record.task.payload == {"a": [1, None]}


def test_pairs_make_one_object_with_texts_and_json(run, url, queue):
    ran = run("push", url, "url=https://example.com/?a=b", "depth:=2", "empty=")
    assert ran.code == 0
    assert payloads(queue) == [{"url": "https://example.com/?a=b", "depth": 2, "empty": ""}]


def test_several_json_arguments_are_several_tasks(run, url, queue):
    ran = run("push", url, "1", "true", '"x"')
    assert len(ran.out.split()) == 3
    assert sorted(payloads(queue), key=str) == [1, True, "x"]


def test_pairs_and_json_together_are_refused(run, url, queue):
    ran = run("push", url, "a=1", "{}")
    assert ran.code == 2
    assert "not both" in ran.err
    assert payloads(queue) == []


def test_every_option_of_the_envelope_reaches_the_task(run, url, queue):
    queue.push(1, id="first")
    words = "--id t --name enrich --priority high --label a --label b --project p"
    words += " --depends-on first --delay 2h --ttl 1d --max-attempts 7 --correlation-id c-1"
    words += " --retry-base 3 --retry-cap 1m"
    ran = run("push", url, "{}", *words.split())
    assert ran.code == 0, ran.err
    task = queue.get("t").task
    assert (task.name, task.priority, task.labels, task.project) == ("enrich", 100, ("a", "b"), "p")
    assert (task.depends_on, task.max_attempts, task.correlation_id) == (("first",), 7, "c-1")
    assert task.not_before - task.created_at == pytest.approx(7200)
    assert task.expires_at - task.created_at == pytest.approx(86_400)
    assert (task.retry.base_seconds, task.retry.cap_seconds) == (3, 60)


def test_not_before_takes_a_moment_with_a_time_zone(run, url, queue):
    assert run("push", url, "{}", "--id", "t", "--not-before", "2030-01-31T08:00Z").code == 0
    assert queue.get("t").task.not_before == 1896076800


def test_a_moment_that_is_none_is_a_usage_error(run, url):
    ran = run("push", url, "{}", "--not-before", "soon")
    assert ran.code == 2
    assert "2030-01-31T08:00" in ran.err


def test_a_payload_that_is_not_json_says_how_to_write_it(run, url, queue):
    ran = run("push", url, "{a: 1}")
    assert ran.code == 65
    assert ran.err.startswith("dfq: error: the payload is not JSON")
    assert "name=text" in ran.err
    assert payloads(queue) == []


def test_an_id_that_exists_is_told_and_nothing_changes(run, url, queue):
    run("push", url, "1", "--id", "t")
    ran = run("push", url, "2", "--id", "t")
    assert ran.code == 65
    assert "exists already" in ran.err
    assert payloads(queue) == [1]


@pytest.mark.parametrize("bad", ["a/b", "..", "", "x" * 201, ".hidden"])
def test_a_bad_id_is_told_in_one_line(run, url, bad):
    ran = run("push", url, "1", "--id", bad)
    assert ran.code == 65
    assert ran.err.count("\n") == 1


def test_json_lines_on_stdin_become_tasks(run, url, queue):
    ran = run("push", url, "-", stdin='{"n": 1}\n\n[2]\n"three"')
    assert ran.code == 0
    assert ran.out == "pushed 3 tasks\n"
    assert sorted(payloads(queue), key=str) == [[2], "three", {"n": 1}]


def test_a_csv_file_gives_objects_and_ids_from_a_column(run, url, queue, tmp_path):
    (tmp_path / "orders.csv").write_text('id,city\no1,"Bern, CH"\no2,"two\nlines"\n')
    ran = run("push", url, "--file", "orders.csv", "--id-field", "id", "--json")
    assert ran.json == {"pushed": 2, "existing": 0, "bad": 0, "stopped_at": None}
    assert queue.get("o1").task.payload == {"id": "o1", "city": "Bern, CH"}
    assert queue.get("o2").task.payload == {"id": "o2", "city": "two\nlines"}


def test_pushing_a_file_twice_leaves_what_is_there_alone(run, url, queue, tmp_path):
    (tmp_path / "x.jsonl").write_text('{"id": 1}\n{"id": 2}\n')
    run("push", url, "-f", "x.jsonl", "--id-field", "id")
    ran = run("push", url, "-f", "x.jsonl", "--id-field", "id")
    assert ran.code == 0
    assert "left alone 2 tasks" in ran.out
    assert queue.stats().ready == 2


def test_the_first_bad_line_ends_it_after_pushing_all_before_it(run, url, queue):
    ran = run("push", url, "-", stdin="1\n2\n{\n4\n")
    assert ran.code == 65
    assert "stdin: line 3: not one JSON value" in ran.err
    assert "stopped at line 3" in ran.err
    assert sorted(payloads(queue)) == [1, 2]


def test_skip_bad_goes_on_and_counts(run, url, queue):
    ran = run("push", url, "-", "--skip-bad", "--json", stdin="1\n{\n3\n")
    assert ran.code == 0
    assert ran.json == {"pushed": 2, "existing": 0, "bad": 1, "stopped_at": None}
    assert "line 2" in ran.err
    assert sorted(payloads(queue)) == [1, 3]


def test_many_bad_lines_are_counted_not_all_listed(run, url):
    ran = run("push", url, "-", "--skip-bad", stdin="{\n" * 500)
    assert ran.err.count("not one JSON value") == 20
    assert "500 bad lines in all" in ran.err


def test_a_row_without_its_id_is_a_bad_line(run, url, queue):
    ran = run("push", url, "-", "--id-field", "id", "--skip-bad", stdin='{"id":"a"}\n{}\n[]\n')
    assert "line 2: no field 'id'" in ran.err
    assert "line 3: no object" in ran.err
    assert queue.stats().ready == 1


def test_a_payload_too_large_for_the_queue_is_a_bad_line(run, url, queue):
    big = '"' + "x" * queue.policy.max_payload_bytes + '"'
    ran = run("push", url, "-", "--skip-bad", stdin=f"{big}\n1\n")
    assert "line 1: the payload is" in ran.err
    assert payloads(queue) == [1]


def test_long_input_is_pushed_in_lots(run, url, queue, monkeypatch):
    sizes = []
    push_many = type(queue).push_many

    def counting(self, tasks):
        lot = list(tasks)
        sizes.append(len(lot))
        return push_many(self, lot)

    monkeypatch.setattr(type(queue), "push_many", counting)
    monkeypatch.setattr(loading, "LOT", 10)
    run("push", url, "-", stdin="1\n" * 25)
    assert sizes == [10, 10, 5]


def test_what_was_pushed_before_the_disk_filled_up_is_told(run, url, queue, monkeypatch):
    from dfq.errors import DiskFull

    push_many = type(queue).push_many
    calls = []

    def failing(self, tasks):
        calls.append(1)
        if len(calls) == 2:
            raise DiskFull("no space is left for the queue")
        return push_many(self, tasks)

    monkeypatch.setattr(type(queue), "push_many", failing)
    monkeypatch.setattr(loading, "LOT", 10)
    ran = run("push", url, "-", stdin="1\n" * 25)
    assert ran.code == 74
    assert "10 tasks" in ran.err
    assert "no space is left" in ran.err


def test_a_file_that_is_not_there_is_told(run, url):
    ran = run("push", url, "--file", "gone.csv")
    assert ran.code == 66
    assert "gone.csv" in ran.err
    assert "Traceback" not in ran.err


def test_a_name_that_does_not_tell_the_format_asks_for_it(run, url, tmp_path):
    (tmp_path / "data.txt").write_text("1\n")
    assert "--format" in run("push", url, "--file", "data.txt").err
    assert run("push", url, "--file", "data.txt", "--format", "jsonl").code == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--file", "x.csv", "{}"], "not both"),
        ([], "nothing to push"),
        (["--file", "x.csv", "--id", "a"], "--id-field"),
        (["{}", "--id-field", "a"], "use --id"),
        (["1", "2", "--id", "a"], "one task"),
    ],
)
def test_options_that_contradict_each_other_are_refused(run, url, words, says):
    ran = run("push", url, *words)
    assert ran.code == 2
    assert says in ran.err


def test_quiet_leaves_nothing_but_errors_of_a_file(run, url, queue):
    rows = '{"id": 1}\n{"id": 2}\n'
    ran = run("push", url, "-", "--id-field", "id", "--quiet", stdin=rows)
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    assert queue.stats().ready == 2
    ran = run("push", url, "-", "--id-field", "id", "--skip-bad", "--quiet", stdin=rows + "{\n")
    assert (ran.code, ran.out) == (0, "")
    assert ran.err.startswith("dfq: error: stdin: line 3")
    assert ran.err.count("\n") == 1
    ran = run("push", url, "-", "--quiet", stdin="{\n")
    assert ran.code == 65
    assert "stopped at line 1" in ran.err


def test_quiet_may_be_configured_and_leaves_ids_and_json(run, url, queue, monkeypatch):
    monkeypatch.setenv("DFQ_QUIET", "1")
    assert run("push", url, "-", stdin="1\n").out == ""
    assert run("push", url, "-", "--json", stdin="1\n").json["pushed"] == 1
    assert run("push", url, "1", "--id", "t").out == "t\n"


def test_a_misspelt_priority_names_the_nearest(run, url):
    ran = run("push", url, "1", "--priority", "criticl")
    assert ran.code == 65
    assert "priority 'criticl' is unknown; did you mean 'critical'?" in ran.err
    ran = run("push", url, "1", "--priority", "urgnt")
    assert "known: critical, high, low, normal" in ran.err
    assert "a whole number" in ran.err


def test_a_queue_that_is_a_file_is_told(run, tmp_path):
    (tmp_path / "notes.txt").touch()
    for words in (
        ["push", "./notes.txt", "1"],
        ["worker", "notes.txt", "--exec", "cat", "--drain"],
    ):
        ran = run(*words)
        assert ran.code == 74
        assert f"{tmp_path}/notes.txt is a file, and a queue is a folder" in ran.err
