from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dfq.config import Config, load_config
from dfq.errors import InvalidConfig


def load(start: Path, **environment: str) -> Config:
    return load_config({"HOME": str(start), **environment}, start)


def write(folder: Path, text: str) -> Path:
    path = folder / "dfq.toml"
    path.write_text(text)
    return path


def test_without_file_and_variables_the_defaults_hold(tmp_path):
    assert load(tmp_path) == Config()


def test_variables_are_stronger_than_the_file_and_options_stronger_than_both(tmp_path):
    write(tmp_path, 'concurrency = 2\nprocesses = 3\nhandler = "a:b"\n')
    config = load(tmp_path, DFQ_CONCURRENCY="4", DFQ_PROCESSES="5")
    config = config.with_options(processes=6, handler=None)
    assert (config.handler, config.concurrency, config.processes) == ("a:b", 4, 6)


def test_the_file_is_found_in_a_parent_up_to_home(tmp_path):
    write(tmp_path, "quiet = true\n")
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    assert load_config({"HOME": str(tmp_path)}, below).quiet
    assert not load_config({"HOME": str(tmp_path / "a")}, below).quiet


def test_the_nearest_file_wins(tmp_path):
    write(tmp_path, "concurrency = 1\n")
    below = tmp_path / "a"
    below.mkdir()
    write(below, "concurrency = 2\n")
    assert load_config({"HOME": str(tmp_path)}, below).concurrency == 2


def test_dfq_config_names_the_file(tmp_path):
    path = tmp_path / "other.toml"
    path.write_text("concurrency = 9\n")
    assert load(tmp_path, DFQ_CONFIG=str(path)).concurrency == 9


def test_dfq_config_that_names_nothing_is_an_error(tmp_path):
    with pytest.raises(InvalidConfig, match=r"DFQ_CONFIG names '/nowhere\.toml'"):
        load(tmp_path, DFQ_CONFIG="/nowhere.toml")


def test_an_unknown_key_names_the_file_and_the_nearest_known_key(tmp_path):
    path = write(tmp_path, "concurency = 2\n")
    with pytest.raises(InvalidConfig) as error:
        load(tmp_path)
    assert str(error.value) == f"{path}: unknown key 'concurency'; did you mean 'concurrency'?"


def test_an_unknown_variable_names_the_nearest_known_one(tmp_path):
    with pytest.raises(InvalidConfig, match=r"DFQ_QUEUE_ULR is unknown.*'DFQ_QUEUE_URL'"):
        load(tmp_path, DFQ_QUEUE_ULR="x")


def test_variables_of_a_task_are_no_settings(tmp_path):
    assert load(tmp_path, DFQ_TASK_ID="t", DFQ_FENCE="3", DFQ_WORKER_CHILD="1/2") == Config()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('concurrency = "2"', "a whole number"),
        ("concurrency = true", "a whole number"),
        ("concurrency = 1.5", "a whole number"),
        ('quiet = "yes"', "true or false"),
        ("handler = 3", "a string"),
        ("grace_seconds = false", "a number of seconds"),
        ("queue_url = ['x']", "a string"),
    ],
)
def test_a_wrong_type_names_file_key_and_what_is_expected(tmp_path, line, expected):
    path = write(tmp_path, line + "\n")
    with pytest.raises(InvalidConfig) as error:
        load(tmp_path)
    assert str(error.value).startswith(f"{path}: {line.split()[0]} is ")
    assert str(error.value).endswith(f"it must be {expected}")


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("DFQ_CONCURRENCY", "many", "a whole number"),
        ("DFQ_LOG_JSON", "maybe", "true or false"),
        ("DFQ_GRACE_SECONDS", "1 minute", "a number of seconds"),
    ],
)
def test_a_variable_of_the_wrong_type_says_what_is_expected(tmp_path, variable, value, expected):
    with pytest.raises(InvalidConfig, match=f"{variable} is '{value}'; it must be {expected}"):
        load(tmp_path, **{variable: value})


@pytest.mark.parametrize(("word", "value"), [("1", True), ("TRUE", True), ("off", False)])
def test_a_truth_in_a_variable_has_many_names(tmp_path, word, value):
    assert load(tmp_path, DFQ_QUIET=word).quiet is value


def test_an_empty_value_is_an_error(tmp_path):
    with pytest.raises(InvalidConfig, match="DFQ_QUEUE_URL is empty"):
        load(tmp_path, DFQ_QUEUE_URL="")


def test_a_relative_queue_in_the_file_starts_at_the_file(tmp_path):
    write(tmp_path, 'queue_url = "queues/jobs"\nhealth_path = "/run/h"\n')
    below = tmp_path / "a"
    below.mkdir()
    config = load_config({"HOME": str(tmp_path)}, below)
    assert config.queue_url == str(tmp_path / "queues" / "jobs")
    assert config.health_path == "/run/h"


def test_a_url_in_the_file_stays_as_it_is(tmp_path):
    write(tmp_path, 'queue_url = "memory://x"\n')
    assert load(tmp_path).queue_url == "memory://x"


def test_a_home_in_a_variable_is_found_without_a_shell(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load(tmp_path, DFQ_QUEUE_URL="~/jobs").queue_url == str(tmp_path / "jobs")
    assert load(tmp_path, DFQ_QUEUE_URL="memory://~").queue_url == "memory://~"


def test_a_file_that_is_not_toml_is_told_with_its_line(tmp_path):
    path = write(tmp_path, "a = 1\nb =\n")
    with pytest.raises(InvalidConfig, match=rf"{path}: this is not TOML: .*line 2"):
        load(tmp_path)


def test_a_file_that_is_not_utf_8_is_told(tmp_path):
    (tmp_path / "dfq.toml").write_bytes(b"queue_url = '\xff'\n")
    with pytest.raises(InvalidConfig, match="not TOML"):
        load(tmp_path)


def test_a_file_of_another_user_is_refused_unless_it_was_named(tmp_path, monkeypatch):
    path = write(tmp_path, "concurrency = 2\n")
    if os.geteuid() == 0:
        os.chown(path, 12345, 12345)
    else:  # only root can give files away, so be somebody else
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(InvalidConfig, match="belongs to another user"):
        load(tmp_path)
    assert load(tmp_path, DFQ_CONFIG=str(path)).concurrency == 2


def test_no_toml_parser_is_imported_without_a_file(tmp_path):
    program = (
        "import sys; from pathlib import Path; from dfq.config import load_config; "
        f"load_config({{'HOME': {str(tmp_path)!r}}}, Path({str(tmp_path)!r})); "
        "sys.exit('tomllib' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
