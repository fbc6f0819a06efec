from __future__ import annotations

from pathlib import Path

import pytest

from dfq.config import load_config, load_prices
from dfq.cost import Prices, Usage, bill
from dfq.errors import InvalidConfig

THREE_PUTS = Usage(100.0, 160.0, {"put": 3_000_000, "get": 1_000_000}, completed=1_000_000)


def prices(folder: Path, text: str) -> Prices:
    (folder / "dfq.toml").write_text(text)
    return load_prices({"HOME": str(folder)}, folder)


def test_a_million_tasks_of_three_puts_and_a_get_cost_15_dollars_40():
    made = bill([THREE_PUTS], Prices())
    assert made.dollars == pytest.approx(15.40)
    assert made.dollars_per_million_tasks == pytest.approx(15.40)
    assert made.dollars_by_kind == pytest.approx({"put": 15, "get": 0.4, "list": 0, "delete": 0})


def test_sqs_would_take_three_requests_a_task_or_a_tenth_of_that():
    made = bill([THREE_PUTS], Prices())
    assert made.sqs_dollars == pytest.approx(1.20)
    assert made.sqs_batched_dollars == pytest.approx(0.12)


def test_what_processes_told_is_added_up_from_the_first_start_to_the_last_word():
    earlier = Usage(40.0, 90.0, {"put": 5, "list": 2, "delete": 7}, pushed=4)
    later = Usage(60.0, 120.0, {"put": 1, "get": 3}, claimed=2, completed=2)
    made = bill([later, earlier], Prices())
    assert (made.since, made.until, made.processes) == (40.0, 120.0, 2)
    assert made.requests == {"put": 6, "get": 3, "list": 2, "delete": 7}
    assert (made.pushed, made.claimed, made.completed) == (4, 2, 2)
    assert made.requests_per_task == {"put": 3.0, "get": 1.5, "list": 1.0, "delete": 3.5}


def test_without_completed_tasks_there_is_no_price_of_one():
    made = bill([Usage(0.0, 1.0, {"list": 10})], Prices())
    assert made.requests_per_task is None
    assert made.dollars_per_million_tasks is None
    assert made.dollars == pytest.approx(50e-6)


def test_prices_in_the_file_replace_the_defaults_one_by_one(tmp_path):
    found = prices(tmp_path, "[prices]\nput = 4.5\nsqs = 0\n")
    assert found == Prices(put=4.5, sqs=0)
    assert found.get == Prices().get


def test_without_a_file_the_default_prices_hold(tmp_path):
    assert load_prices({"HOME": str(tmp_path)}, tmp_path) == Prices()


def test_a_file_with_prices_has_settings_as_before(tmp_path):
    (tmp_path / "dfq.toml").write_text("concurrency = 3\n[prices]\nput = 1\n")
    assert load_config({"HOME": str(tmp_path)}, tmp_path).concurrency == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[prices]\nputs = 1", r"prices\.puts is unknown; did you mean 'put'\?"),
        ("[prices]\nput = '5'", r"prices\.put is '5'; it must be the price of a million requests"),
        ("[prices]\nput = true", r"prices\.put is True"),
        ("[prices]\nput = -1", r"prices\.put is -1"),
        ("[prices]\nput = nan", r"prices\.put is nan"),
        ("prices = 5", r"prices is 5; it must be a table: \[prices\]"),
    ],
)
def test_a_wrong_price_is_told_with_file_and_key(tmp_path, text, message):
    with pytest.raises(InvalidConfig, match=message) as error:
        prices(tmp_path, text + "\n")
    assert str(tmp_path / "dfq.toml") in str(error.value)
