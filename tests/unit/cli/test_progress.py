from __future__ import annotations

import io
import sys

import pytest

from dfq.cli import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    """Makes stderr a terminal; called within the test, as pytest puts its own there between."""

    def become_terminal():
        stream = Terminal()
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setenv("TERM", "xterm")
        return stream

    return become_terminal


@pytest.fixture
def without_rich(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "rich"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "rich", None)


def test_without_a_terminal_there_is_no_bar(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with progress.progress("pushing", 10) as bar:
        bar.update(5)
    assert isinstance(bar, progress.SilentBar)
    assert stream.getvalue() == ""


def test_silence_is_kept_on_a_terminal_too(terminal):
    screen = terminal()
    with progress.progress("pushing", 10, silent=True) as bar:
        bar.update(5)
    assert screen.getvalue() == ""


@pytest.mark.parametrize("total", [10, None])
def test_rich_draws_where_it_is_installed(terminal, total):
    screen = terminal()
    with progress.progress("pushing [x]", total) as bar:
        bar.update(5, note="2 [failed]")
        bar.update(10, 10, note="2 [failed]")
    assert isinstance(bar, progress.RichBar)
    assert "pushing [x]" in screen.getvalue()
    assert "2 [failed]" in screen.getvalue()


@pytest.mark.parametrize("total", [10, None])
def test_click_draws_where_rich_is_missing(terminal, without_rich, total):
    screen = terminal()
    with progress.progress("pushing", total) as bar:
        bar.update(5, note="2 failed")
        bar.update(10, note="2 failed")
    assert isinstance(bar, progress.ClickBar)
    assert "pushing" in screen.getvalue()
    assert "10" in screen.getvalue()


def test_a_bar_that_learns_its_total_goes_on(terminal, without_rich):
    screen = terminal()
    with progress.progress("draining", None) as bar:
        bar.update(1)
        bar.update(2, 4)
        bar.update(4, 4)
    assert "4/4" in screen.getvalue()


def test_a_bar_whose_total_shrinks_at_the_end_says_so(terminal, without_rich):
    screen = terminal()
    with progress.progress("draining", None) as bar:
        bar.update(4, 5)
        bar.update(4, 4)
    assert "4/4" in screen.getvalue()
