from __future__ import annotations

import dataclasses
import io
import os
import pty
import sys

import pytest

from dfq.cli import keyboard, live


@pytest.fixture
def frames(queue):
    queue.push(1, id="held")
    queue.push(2, id="stuck", depends_on=["nobody"])
    lease = queue.claim("worker-1")
    before = live.look(queue, None)
    # A lease.json that another program wrote may hold anything.
    foreign = dataclasses.replace(lease, worker_id="worker-\x1b[31m")
    before = dataclasses.replace(before, leases=(foreign,))
    queue.ack(lease)
    return before, live.look(queue, before)


def test_the_rate_is_what_was_finished_since_the_look_before(frames):
    before, now = frames
    assert before.rate is None
    assert now.rate == pytest.approx(1 / (now.at - before.at))


def test_a_purge_is_no_negative_work(queue, frames):
    queue.purge()
    assert live.look(queue, frames[1]).rate == 0


def test_lines_tell_who_holds_what_and_are_printable(frames):
    text = live.frame_lines(frames[0])
    assert any("held" in line and "worker-\\x1b[31m" in line for line in text)
    assert all(line.isprintable() for line in text)


def test_rich_draws_the_same(frames):
    from rich.console import Console

    console = Console(file=io.StringIO(), width=100)
    console.print(live._rich_view(frames[0]))
    text = console.file.getvalue()
    assert "worker-\\x1b[31m" in text
    assert "stuck" in text
    assert "\x1b[31m" not in text


def test_more_holders_than_fit_are_counted(queue):
    for number in range(live.HOLDERS_SHOWN + 5):
        queue.push(number)
        queue.claim(f"worker-{number}")
    rows = live.holder_rows(live.look(queue, None))
    assert len(rows) == live.HOLDERS_SHOWN + 1
    assert rows[-1][0] == "and 5 more"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_without_rich_is_redrawn(frames, monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "rich"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "rich", None)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    with live.screen() as screen:
        screen.draw(frames[0])
    assert isinstance(screen, live.PlainScreen)
    assert "q quits" in terminal.getvalue()


def test_keys_are_read_one_by_one_and_the_terminal_is_put_back(monkeypatch):
    import termios

    master, slave = pty.openpty()
    try:
        with os.fdopen(slave, "r") as stdin:
            monkeypatch.setattr(sys, "stdin", stdin)
            before = termios.tcgetattr(slave)
            with keyboard.keys() as wait_for_key:
                assert termios.tcgetattr(slave) != before
                os.write(master, b"q")
                assert wait_for_key(30) == "q"
                assert wait_for_key(0.01) == ""
            assert termios.tcgetattr(slave) == before
    finally:
        os.close(master)


def test_without_a_terminal_it_only_waits(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("q"))
    with keyboard.keys() as wait_for_key:
        assert wait_for_key(0.01) == ""
