"""`dfq stats --cost` on a queue in a bucket: what other processes asked of it, told after them."""

from __future__ import annotations

import json

TASKS = 120


def test_the_cost_of_processes_that_ended_is_told(run, url, tmp_path):
    (tmp_path / "handlers.py").write_text("def handle(payload):\n    return payload\n")
    (tmp_path / "dfq.toml").write_text("[prices]\nput = 1000000\nget = 0\nlist = 0\n")
    assert run("push", url, "-", stdin="1\n" * TASKS).returncode == 0
    worked = run("worker", url, "--handler", "handlers:handle", "--drain")
    assert worked.returncode == 0, worked.stderr

    cost = json.loads(run("stats", url, "--cost", "--json").stdout)["cost"]
    assert (cost["processes"], cost["pushed"], cost["completed"]) == (3, TASKS, TASKS)
    # Three a task; and the store was put to the test once, by the first process.
    assert cost["requests"]["put"] >= 3 * TASKS
    assert cost["dollars"] == cost["requests"]["put"]
    assert cost["requests_per_task"]["put"] == cost["requests"]["put"] / TASKS
    assert cost["until"] - cost["since"] < 3600

    told = run("stats", url, "--cost").stdout
    assert "as told by 3 processes" in told
    assert f"{TASKS} completed" in told
    assert "SQS would have cost" in told
