"""The command line on queues in buckets: every command, as on a folder."""

from __future__ import annotations

import json
import sys

import pytest


def shown(run, url, task_id):
    return json.loads(run("show", url, task_id, "--json").stdout)


def counts(run, url):
    return json.loads(run("stats", url, "--json").stdout)


def states(run, url, *words):
    lines = run("ls", url, "--json", *words).stdout.splitlines()
    return {row["id"]: row["state"] for row in map(json.loads, lines)}


def done(ran):
    """A command that went well says nothing on stderr."""
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout


def test_push_work_and_look(run, fresh_url):
    url = fresh_url
    assert done(run("push", url, "city=Bern", "--id", "bern", "--priority", "high")) == "bern\n"
    assert done(run("push", url, "-", stdin='{"n": 1}\n{"n": 2}\n')) == "pushed 2 tasks\n"
    assert counts(run, url)["ready"] == 3
    worked = run("worker", url, "--exec", "cat", "--drain")
    assert worked.returncode == 0, worked.stderr
    stats = counts(run, url)
    assert (stats["completed"], stats["pending"], stats["queue"]) == (3, 0, url)
    assert "3 completed" in done(run("stats", url))
    assert shown(run, url, "bern")["result"] == {"city": "Bern"}
    assert "completed" in done(run("show", url, "bern"))
    assert set(states(run, url).values()) == {"completed"}
    assert "bern" in done(run("ls", url))


def test_the_queue_may_be_configured(run, url):
    assert done(run("push", "-q", url, "1", "--id", "a")) == "a\n"
    assert done(run("cancel", "a", DFQ_QUEUE_URL=url)) == "cancelled a\n"
    assert states(run, url) == {"a": "failed"}


def test_several_processes_share_the_work(run, url):
    done(run("push", url, "-", stdin="1\n" * 20))
    worked = run("worker", url, "--exec", "cat", "--processes", "2", "--drain")
    assert worked.returncode == 0, worked.stderr
    stats = counts(run, url)
    assert (stats["completed"], stats["pending"], stats["failed"]) == (20, 0, 0)
    assert worked.stderr.count(": completed in ") == 20


def test_a_program_pushes_into_the_queue_it_works_for(run, url, tmp_path):
    (tmp_path / "again.sh").write_text(
        f'#!/bin/sh\nexec "{sys.executable}" -m dfq push "from=$DFQ_TASK_ID" --id child\n'
    )
    (tmp_path / "again.sh").chmod(0o755)
    done(run("push", url, "1", "--id", "parent"))
    worked = run("worker", url, "--exec", "./again.sh", "--once")
    assert worked.returncode == 0, worked.stderr
    assert shown(run, url, "child")["payload"] == {"from": "parent"}


def test_failed_tasks_are_seen_and_brought_back(run, url):
    done(run("push", url, "1", "--id", "t", "--max-attempts", "1"))
    assert run("worker", url, "--exec", "false", "--once").returncode == 1
    record = shown(run, url, "t")
    assert (record["state"], record["attempts"]) == ("failed", 1)
    assert states(run, url, "--state", "failed") == {"t": "failed"}
    assert done(run("requeue", url, "t")) == "requeued t\n"
    assert run("worker", url, "--exec", "cat", "--once").returncode == 0
    again = shown(run, url, "t")
    assert (again["state"], len(again["errors"])) == ("completed", 1)
    assert again["lease"]["fence"] > record["lease"]["fence"]
    refused = run("requeue", url, "t")
    assert refused.returncode == 69
    assert "completed" in refused.stderr


def test_tasks_are_cancelled_buried_and_purged(run, url):
    for name in ("a", "b", "c"):
        done(run("push", url, "1", "--id", name))
    assert done(run("cancel", url, "a")) == "cancelled a\n"
    assert done(run("bury", url, "b")) == "buried b\n"
    assert states(run, url) == {"a": "failed", "b": "failed", "c": "ready"}
    assert run("purge", url).returncode == 2
    assert done(run("purge", url, "--state", "failed", "--yes")) == "deleted 2 tasks\n"
    assert states(run, url) == {"c": "ready"}
    assert done(run("purge", url, "--yes")) == "deleted 1 task\n"
    assert states(run, url) == {}
    assert run("show", url, "c").returncode == 66


def test_a_paused_queue_hands_out_nothing(run, url):
    done(run("push", url, "1", "--id", "t"))
    assert done(run("pause", url, "--reason", "lunch")).startswith("paused")
    assert "paused" in done(run("stats", url))
    worked = run("worker", url, "--exec", "cat", "--once")
    assert worked.returncode == 3
    # The whole command, so that it can be copied: the shell would take the & for its own.
    assert f"`dfq resume '{url}'`" in worked.stderr
    assert done(run("resume", url)).startswith("resumed")
    assert run("worker", url, "--exec", "cat", "--once").returncode == 0


def test_top_and_sweep_and_doctor(run, url):
    done(run("push", url, "1", "--id", "t"))
    (frame,) = map(json.loads, done(run("top", url, "--count", "1", "--json")).splitlines())
    assert (frame["ready"], frame["leases"]) == (1, [])
    assert "1 ready" in done(run("top", url, "--count", "1"))
    assert done(run("sweep", url)) == "nothing to put right\n"
    findings = [json.loads(row) for row in done(run("doctor", url, "--json")).splitlines()]
    assert {finding["level"] for finding in findings} == {"ok"}
    assert "one writer won every race" in findings[0]["message"]
    assert "nothing is wrong" in done(run("doctor", url))
    assert states(run, url) == {"t": "ready"}


def test_the_health_of_a_worker_is_told(run, url, tmp_path):
    (tmp_path / "ask.sh").write_text(
        f'#!/bin/sh\ncat > /dev/null; exec "{sys.executable}" -m dfq health worker.health --json\n'
    )
    (tmp_path / "ask.sh").chmod(0o755)
    done(run("push", url, "1", "--id", "t"))
    worked = run("worker", url, "--exec", "./ask.sh", "--once", "--health", "worker.health")
    assert worked.returncode == 0, worked.stderr
    health = shown(run, url, "t")["result"]
    assert (health["alive"], health["workers"][0]["queue"]) == (True, url)
    assert run("health", "worker.health").returncode == 1


def test_the_policy_that_init_wrote_holds(run, url, store):
    wrote = done(run("init", url, "--max-attempts", "1", "--lease", "30s"))
    assert wrote == f"wrote {store.url}/queue.json\n"
    done(run("push", url, "1", "--id", "t"))
    assert run("worker", url, "--exec", "false", "--once").returncode == 1
    record = shown(run, url, "t")
    assert (record["state"], record["attempts"], record["max_attempts"]) == ("failed", 1, 1)


def test_a_policy_is_changed_only_on_purpose(run, url):
    done(run("init", url, "--max-attempts", "3", "--retry-base", "10s"))
    refused = run("init", url, "--max-attempts", "4")
    assert refused.returncode == 73
    assert "--update" in refused.stderr
    policy = json.loads(done(run("init", url, "--update", "--retry-cap", "1h", "--json")))
    assert policy["max_attempts"] == 3
    assert policy["retry"] == {"base_seconds": 10, "cap_seconds": 3600, "factor": 2}
    assert run("init", url, "--layout", "flat").returncode == 2


def test_of_two_who_change_a_policy_at_once_one_is_told(store):
    from dfq.ambient import SYSTEM_CHANCE
    from dfq.cli.policy_file import QueueExists, write_policy
    from dfq.cli.policy_places import InStore

    class Overtaken(InStore):
        """Somebody else writes between our look and our write."""

        def read(self):
            found = super().read()
            content = b'{"max_attempts": %d}' % (1 if found is None else 2)
            store.put("queue.json", content)
            return found

    for update, left in ((False, 1), (True, 2)):
        with pytest.raises(QueueExists, match="somebody else"):
            write_policy(Overtaken(store, SYSTEM_CHANCE), {"max_attempts": 9}, None, update)
        assert json.loads(store.read("queue.json").body) == {"max_attempts": left}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"max_attempts": 3', "queue.json is not JSON"),
        (b'{"max_attemps": 3}', "max_attempts"),
        (b'{"dfq": 99}', "Upgrade dfq"),
    ],
    ids=["cut", "misspelt", "newer"],
)
def test_a_policy_that_can_not_be_kept_to_stops_everybody(run, url, store, content, said):
    store.put("queue.json", content)
    for words in (("push", url, "1"), ("stats", url), ("worker", url, "--exec", "cat", "--drain")):
        ran = run(*words)
        assert (ran.returncode, ran.stdout) == (78, "")
        assert said in ran.stderr
        assert "Traceback" not in ran.stderr
    assert [entry.key for entry in store.list("").entries] == ["certified.json", "queue.json"]
    store.put("queue.json", b'{"dfq": 1, "layout": "flat", "max_attempts": 3}')
    done(run("push", url, "1", "--id", "t"))
    assert shown(run, url, "t")["max_attempts"] == 3
