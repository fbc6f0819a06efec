"""Log lines, for people and for machines."""

from __future__ import annotations

import io
import json
import logging
import os

import pytest

from dfq.testing import memory_queue
from dfq.worker.logs import LOGGER, configure, task_logger


@pytest.fixture
def lease():
    queue = memory_queue()
    queue.push(1, id="a", name="enrich", correlation_id="corr")
    return queue.claim("w")


def lines(as_json, say):
    stream = io.StringIO()
    configure(as_json=as_json, stream=stream)
    say()
    return stream.getvalue().splitlines()


def test_a_line_for_people_names_the_task_and_its_correlation_id(lease):
    (line,) = lines(False, lambda: task_logger(lease).info("done in %d s", 3))
    assert "a enrich attempt=1 fence=1 correlation=corr: done in 3 s" in line
    assert " info " in line


def test_a_json_line_has_the_same_as_fields(lease):
    (line,) = lines(True, lambda: task_logger(lease).warning("careful"))
    content = json.loads(line)
    assert content["message"] == "careful"
    assert content["level"] == "warning"
    assert content["at"].endswith("+00:00")
    about = {key: content[key] for key in ("task_id", "name", "attempt", "fence")}
    assert about == {"task_id": "a", "name": "enrich", "attempt": 1, "fence": 1}
    assert (content["correlation_id"], content["worker_id"]) == ("corr", "w")


def test_a_traceback_is_one_json_line(lease):
    def say():
        try:
            raise ValueError("broken")
        except ValueError:
            task_logger(lease).exception("it failed")

    (line,) = lines(True, say)
    assert "ValueError: broken" in json.loads(line)["traceback"]


def test_text_that_is_not_valid_unicode_is_logged_all_the_same():
    (line,) = lines(True, lambda: LOGGER.error("name \udcff"))
    assert json.loads(line)["message"] == "name \\udcff"


def test_configuring_twice_does_not_log_twice():
    lines(True, lambda: None)
    assert len(lines(True, lambda: LOGGER.info("once"))) == 1


def test_logging_set_up_by_the_program_is_left_alone():
    mine = logging.StreamHandler(io.StringIO())
    LOGGER.addHandler(mine)
    before = LOGGER.handlers[:]
    configure(as_json=False)
    assert LOGGER.handlers == before


def test_colours_are_for_terminals_only():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    plain, terminal = io.StringIO(), Terminal()
    for stream in (plain, terminal):
        configure(as_json=False, stream=stream)
        LOGGER.error("bad")
    assert "\x1b[" not in plain.getvalue()
    assert "\x1b[31m" in terminal.getvalue()


# The journal of systemd


@pytest.fixture
def journal(tmp_path, monkeypatch):
    """A file that systemd would say is its journal."""
    with (tmp_path / "journal").open("w+") as file:
        found = os.fstat(file.fileno())
        monkeypatch.setenv("JOURNAL_STREAM", f"{found.st_dev}:{found.st_ino}")
        yield file


def journalled(file, say, *, as_json=False):
    configure(as_json=as_json, stream=file)
    LOGGER.setLevel(logging.DEBUG)
    say()
    file.seek(0)
    return file.read().splitlines()


def test_in_the_journal_every_line_has_its_level_and_no_time(journal, lease):
    def say():
        LOGGER.debug("one")
        LOGGER.info("two")
        task_logger(lease).warning("three")
        LOGGER.error("four")
        LOGGER.critical("five")

    assert journalled(journal, say) == [
        "<7>one",
        "<6>two",
        "<4>a enrich attempt=1 fence=1 correlation=corr: three",
        "<3>four",
        "<2>five",
    ]


def test_in_the_journal_a_traceback_has_its_level_on_every_line(journal):
    def say():
        try:
            raise ValueError("two\nlines")
        except ValueError:
            LOGGER.exception("it failed")

    lines = journalled(journal, say)
    assert lines[0] == "<3>it failed"
    assert lines[-2:] == ["<3>ValueError: two", "<3>lines"]
    assert all(line.startswith("<3>") for line in lines)


def test_in_the_journal_json_has_its_level_in_front(journal):
    (line,) = journalled(journal, lambda: LOGGER.info("two\nlines"), as_json=True)
    assert json.loads(line.removeprefix("<6>"))["message"] == "two\nlines"


def test_what_goes_elsewhere_is_written_as_ever(journal, monkeypatch, tmp_path):
    monkeypatch.setenv("JOURNAL_STREAM", "1:1")
    (line,) = journalled(journal, lambda: LOGGER.info("two"))
    assert line.endswith(" info    two")
    assert not line.startswith("<")
