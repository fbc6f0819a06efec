from __future__ import annotations

import pytest

from dfq.cli.cost import cost_json, cost_lines
from dfq.cost import Prices, Usage, bill

WORKED = Usage(0.0, 7200.0, {"put": 2_000, "get": 1_000, "list": 20, "delete": 1_000}, 0, 1, 1_000)
PUSHED = Usage(0.0, 60.0, {"put": 1_000}, pushed=1_000)


def test_a_queue_in_memory_costs_nothing(run, url, queue):
    ran = run("stats", url, "--cost")
    assert ran.code == 0
    assert "requests cost nothing here" in ran.out
    assert run("stats", url, "--cost", "--json").json["cost"] == {"priced": False}


def test_cost_is_told_only_if_asked_for(run, url, queue):
    assert "cost" not in run("stats", url).out
    assert "cost" not in run("stats", url, "--json").json


def test_a_wrong_price_is_told_without_a_traceback(run, url, queue, tmp_path):
    (tmp_path / "dfq.toml").write_text("[prices]\nput = 'much'\n")
    ran = run("stats", url, "--cost")
    assert ran.code == 78
    assert "prices.put is 'much'" in ran.err


def test_the_bill_tells_requests_by_kind_in_all_and_per_task():
    text = "\n".join(cost_lines(bill([WORKED, PUSHED], Prices())))
    assert "the last 2h, as told by 2 processes" in text
    assert "3,000 put" in text and "3.000 a task" in text and "$0.015000" in text
    assert "a million such tasks cost $15.50" in text
    assert "SQS would have cost $0.001200 for these tasks one by one, $0.000120 by tens" in text


def test_without_completed_tasks_nothing_is_told_per_task():
    text = "\n".join(cost_lines(bill([PUSHED], Prices())))
    assert "as told by 1 process:" in text
    assert "a task" not in text and "SQS" not in text


def test_programs_get_the_same_numbers():
    told = cost_json(bill([WORKED, PUSHED], Prices()))
    assert told["requests"] == {"put": 3_000, "get": 1_000, "list": 20, "delete": 1_000}
    assert told["requests_per_task"]["list"] == 0.02
    assert told["dollars"] == pytest.approx(0.0155)
    assert told["sqs_dollars"] == pytest.approx(0.0012)
