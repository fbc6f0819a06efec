from __future__ import annotations

import io
import sys

import orjson
import pytest

from dfq.cli import output


class Terminal(io.TextIOWrapper):
    def __init__(self):
        super().__init__(io.BytesIO(), encoding="utf-8")

    def isatty(self):
        return True

    def getvalue(self):
        self.flush()
        return self.buffer.getvalue().decode()


@pytest.fixture
def terminal(monkeypatch):
    """Makes stdout a terminal; called within the test, as pytest puts its own there between."""

    def become_terminal():
        stream = Terminal()
        monkeypatch.setattr(sys, "stdout", stream)
        monkeypatch.setenv("TERM", "xterm")
        return stream

    return become_terminal


@pytest.mark.parametrize("text", ["\x1b[31m", "a\x07b", "\x9b2J", "\u202egnp", "\x7f", "a\rb"])
def test_nothing_printed_steers_the_terminal(text):
    shown = output.printable(text)
    assert shown.isprintable()
    assert shown != text


def test_what_people_write_is_printed_as_it_is():
    assert output.printable("Zürich 東京 🙂") == "Zürich 東京 🙂"


@pytest.mark.parametrize("text", ["\x9b2J", "\u202e", "\x7f", "\U000e0001", "plain ü"])
def test_json_on_a_terminal_is_harmless_and_still_the_same_json(terminal, text):
    screen = terminal()
    output.json_line({"text": text})
    printed = screen.getvalue().rstrip("\n")
    assert printed.isprintable()
    assert orjson.loads(printed) == {"text": text}


def test_json_to_a_pipe_is_left_alone(capsys):
    output.json_line({"text": "\u202e"})
    assert capsys.readouterr().out == '{"text":"\u202e"}\n'


def test_a_name_that_is_not_utf_8_still_makes_json(capsys):
    output.json_line({"queue": "/srv/\udcff"})
    assert capsys.readouterr().out == '{"queue": "/srv/\\udcff"}\n'


def test_colours_are_for_terminals_that_want_them(terminal, monkeypatch):
    terminal()
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert output.styled("x", fg="red") == "\x1b[31mx\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert output.styled("x", fg="red") == "x"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (-5, "0s"), (119, "119s"), (300, "5m"), (7300, "2h"), (864000, "10d")],
)
def test_durations_are_short(seconds, text):
    assert output.duration(seconds) == text


def test_a_moment_out_of_all_bounds_is_still_told():
    assert "since 1970" in output.moment(1e300, 0)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("1.5h", 5400), ("30m", 1800), ("7d", 604800), ("0", 0)]
)
def test_lengths_of_time_have_units(text, seconds):
    from dfq.cli.options import DURATION

    assert DURATION.convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["", "h", "-1", "1y", "nan", "inf", "1e300"])
def test_what_is_no_length_of_time_is_refused(text):
    import click

    from dfq.cli.options import DURATION

    with pytest.raises(click.BadParameter, match="no length of time"):
        DURATION.convert(text, None, None)
