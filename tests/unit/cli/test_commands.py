from __future__ import annotations

import pytest

from dfq.record import Finding


@pytest.fixture
def busy(queue):
    """A queue with a task in every state."""
    queue.push({"n": 1}, id="ready", project="acme", labels=["red", "new"], priority="high")
    queue.push({"n": 2}, id="delayed", delay=3600)
    queue.push({"n": 3}, id="blocked", depends_on=["ready"])
    queue.push({"n": 4}, id="leased", priority="critical")
    lease = queue.claim("worker-1")
    assert lease.task_id == "leased"
    queue.push({"n": 5}, id="completed", priority=300)
    queue.ack(queue.claim("worker-2"), {"sum": 10})
    queue.push({"n": 6}, id="failed", priority=300, max_attempts=1, project="acme")
    queue.nack(queue.claim("worker-3"), "boom\nbang")
    return queue


def test_stats_counts_every_state(run, url, busy):
    ran = run("stats", url)
    for state in ("ready", "delayed", "blocked", "leased", "completed", "failed"):
        assert f"1 {state}" in ran.out
    document = run("stats", url, "--json").json
    assert document["queue"] == url
    assert [document[s] for s in ("ready", "leased", "completed", "failed")] == [1, 1, 1, 1]
    assert document["pending"] == 4


def test_stats_tells_of_a_pause_and_of_stuck_tasks(run, url, queue):
    queue.push(1, id="waits", depends_on=["nobody"])
    queue.pause()
    ran = run("stats", url)
    assert "paused" in ran.out
    assert "stuck" in ran.out


def test_ls_lists_by_state(run, url, busy):
    for state in ("ready", "delayed", "blocked", "leased", "completed", "failed"):
        (document,) = run("ls", url, "--state", state, "--json").json_lines
        assert (document["id"], document["state"]) == (state, state)
        assert state in run("ls", url, "--state", state).out


def test_ls_lists_by_project_label_and_priority(run, url, busy):
    assert run("ls", url, "--project", "acme", "--ids").out.split() == ["ready", "failed"]
    assert run("ls", url, "--label", "red", "--label", "new", "--ids").out.split() == ["ready"]
    assert run("ls", url, "--label", "red", "--label", "old", "--ids").out == ""
    listed = run("ls", url, "--min-priority", "high", "--max-priority", "200", "--ids").out.split()
    assert sorted(listed) == ["leased", "ready"]


def test_ls_says_when_there_is_more(run, url, busy):
    ran = run("ls", url, "--limit", "2", "--ids")
    assert len(ran.out.split()) == 2
    assert "more than these 2" in ran.err
    assert len(run("ls", url, "--limit", "0", "--ids").out.split()) == 6
    assert run("ls", url, "--limit", "6").err == ""


def test_ls_of_nothing_says_so_on_stderr(run, url):
    ran = run("ls", url)
    assert (ran.code, ran.out, ran.err) == (0, "", "no such tasks\n")


def test_ls_tells_who_holds_and_what_went_wrong(run, url, busy):
    out = run("ls", url).out
    assert "held by worker-1" in out
    assert "error: boom" in out
    assert "waits for ready (pending)" in out


def test_show_tells_everything(run, url, busy):
    failed = run("show", url, "failed").out
    assert '"n": 6' in failed
    assert "worker-3" in failed
    assert "boom" in failed
    assert "bang" in failed
    done = run("show", url, "completed").out
    assert '"sum": 10' in done
    assert "last held by" in done
    held = run("show", url, "leased").out
    assert "heartbeat" in held
    assert "expires" in held


def test_show_as_json_has_payload_lease_history_and_result(run, url, busy):
    document = run("show", url, "failed", "--json").json
    assert document["payload"] == {"n": 6}
    assert document["errors"][0]["message"] == "boom\nbang"
    assert run("show", url, "completed", "--json").json["result"] == {"sum": 10}
    assert run("show", url, "leased", "--json").json["lease"]["worker_id"] == "worker-1"


def test_show_of_an_unknown_id_says_where_to_look(run, url):
    ran = run("show", url, "nobody")
    assert ran.code == 66
    assert "dfq ls" in ran.err


def test_show_takes_one_id(run, url, busy):
    assert run("show", url, "ready", "failed").code == 2
    assert run("show", url).code == 2


def test_requeue_gives_a_failed_task_back(run, url, busy):
    assert run("requeue", url, "failed").out == "requeued failed\n"
    assert busy.get("failed").state == "ready"


def test_requeue_all_takes_the_chosen_ones(run, url, busy):
    assert run("requeue", url, "--all", "--project", "other").out == ""
    assert run("requeue", url, "--all", "--project", "acme").out == "requeued failed\n"


def test_requeue_wants_ids_or_all(run, url, busy):
    assert run("requeue", url, "failed", "--all").code == 2
    assert run("requeue", url, "failed", "--project", "acme").code == 2
    assert run("requeue", "-q", url).code == 2


def test_a_verb_on_many_tells_of_each_and_ends_with_the_first_error(run, url, busy):
    ran = run("requeue", url, "nobody", "failed", "ready", "--json")
    assert ran.code == 66
    assert [(line["id"], line["done"]) for line in ran.json_lines] == [
        ("nobody", False),
        ("failed", True),
        ("ready", False),
    ]
    assert ran.err.count("dfq: error:") == 2


def test_cancel_takes_a_task_from_its_holder(run, url, busy):
    assert run("cancel", url, "leased", "--reason", "enough").code == 0
    record = busy.get("leased")
    assert record.state == "failed"
    assert record.task.errors[-1].message == "enough"


def test_bury_leaves_a_held_task_alone(run, url, busy):
    ran = run("bury", url, "leased", "ready")
    assert ran.code == 69
    assert busy.get("leased").state == "leased"
    assert busy.get("ready").state == "failed"


def test_purge_refuses_when_nobody_can_be_asked(run, url, busy):
    ran = run("purge", url)
    assert ran.code == 2
    assert "--yes" in ran.err
    assert busy.stats().completed == 1


def test_purge_with_yes_deletes_what_was_chosen(run, url, busy):
    assert run("purge", url, "--state", "completed", "--yes").out == "deleted 1 task\n"
    assert busy.get("completed") is None
    assert run("purge", url, "--yes", "--json").json == {"deleted": 4}
    assert busy.get("leased") is not None


def test_purge_by_age_keeps_the_young(run, url, busy):
    assert run("purge", url, "--older-than", "1h", "--yes", "--json").json == {"deleted": 0}


@pytest.mark.parametrize(("answer", "left"), [("n\n", 1), ("y\n", 0)])
def test_purge_asks_on_a_terminal(run, url, queue, monkeypatch, answer, left):
    import click.testing

    queue.push(1)
    monkeypatch.setattr(click.testing._NamedTextIOWrapper, "isatty", lambda _self: True)
    ran = run("purge", url, stdin=answer)
    assert "Delete 1 task in" in ran.err
    assert queue.stats().ready == left
    assert ran.code == (130 if left else 0)


def test_pause_and_resume(run, url, queue):
    queue.push(1)
    assert run("pause", url, "--reason", "lunch").code == 0
    assert queue.claim() is None
    assert run("resume", url, "--json").json == {"queue": url, "paused": False}
    assert queue.claim() is not None


def test_sweep_reports_what_it_did(run, url, queue):
    assert run("sweep", url).out == "nothing to put right\n"
    assert run("sweep", url, "--json").json["expired_leases"] == 0


def test_doctor_ends_with_1_if_an_error_was_found(run, url, queue, monkeypatch):
    error = Finding("error", "task t", "waits for \x1b[31mnobody", "cancel it")
    monkeypatch.setattr(type(queue), "doctor", lambda _self: [error])
    ran = run("doctor", url)
    assert ran.code == 1
    assert "task t: waits for \\x1b[31mnobody" in ran.out
    assert "cancel it" in ran.out
    assert run("doctor", url, "--json").json["level"] == "error"


def test_doctor_ends_with_0_if_there_are_only_warnings(run, url, queue, monkeypatch):
    warning = Finding("warning", "disk", "nearly full")
    monkeypatch.setattr(type(queue), "doctor", lambda _self: [warning])
    assert run("doctor", url).code == 0


def test_top_prints_as_many_looks_as_asked_for(run, url, busy):
    ran = run("top", url, "--count", "2", "--interval", "0.05")
    assert ran.code == 0
    assert ran.out.count("1 ready") == 2
    assert "worker-1" in ran.out
    first, second = run("top", url, "--count", "2", "--interval", "0.05", "--json").json_lines
    assert first["finished_per_second"] is None
    assert second["finished_per_second"] == 0
    assert second["leases"][0]["task_id"] == "leased"
