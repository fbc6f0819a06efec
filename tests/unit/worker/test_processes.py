"""The supervisor of several worker processes."""

from __future__ import annotations

import os
import signal
import sys
import threading

import pytest

import dfq
from dfq.ambient import SYSTEM_CLOCK
from dfq.errors import InvalidConfig
from dfq.testing import SeededChance, memory_queue
from dfq.worker import WorkerOptions, functions, processes, run
from dfq.worker.processes import Supervisor


class NoPatience(SeededChance):
    """Chance by which every pause is short."""

    def uniform(self, low, high):
        return 0.001


def supervisor(source, count, **options):
    command = [sys.executable, "-S", "-c", source]
    return Supervisor(command, count, SYSTEM_CLOCK, NoPatience(), **options)


def test_it_ends_with_0_when_all_children_are_done():
    assert supervisor("pass", 3).run() == 0


def test_no_child_is_left_as_a_zombie(tmp_path):
    """Each child says who it is: this process may have others, such as the servers of tests."""
    source = f"import os; os.mkdir(os.path.join({str(tmp_path)!r}, str(os.getpid())))"
    supervisor(source, 2).run()
    started = [int(child.name) for child in tmp_path.iterdir()]
    assert len(started) == 2
    for pid in started:
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def test_every_child_is_told_which_it_is(tmp_path):
    source = (
        "import os, pathlib\n"
        "number, count, _ = os.environ['DFQ_WORKER_CHILD'].split('/')\n"
        f"pathlib.Path({str(tmp_path)!r}, number).write_text(count)\n"
    )
    assert supervisor(source, 3).run() == 0
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {"1": "3", "2": "3", "3": "3"}


def test_a_child_that_dies_is_started_again(tmp_path, caplog):
    mark = str(tmp_path / "mark")
    source = (
        "import os, signal\n"
        f"if not os.path.exists({mark!r}):\n"
        f"    open({mark!r}, 'w').close()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert supervisor(source, 1).run() == 0
    assert "worker process 1 died (signal 9)" in caplog.text


def test_a_child_that_ends_well_though_there_is_no_end_is_started_again(tmp_path, caplog):
    """As when a handler ends its process; what ends with 78 ends it all."""
    mark = str(tmp_path / "mark")
    source = (
        f"import os, sys\nif os.path.exists({mark!r}): sys.exit(78)\nopen({mark!r}, 'w').close()\n"
    )
    assert supervisor(source, 1, endless=True).run() == 78
    assert "worker process 1 died (exit code 0)" in caplog.text


def test_a_child_that_ends_well_because_it_is_told_to_is_not_started_again(tmp_path):
    fifo = str(tmp_path / "up")
    signal_when_up(fifo, [signal.SIGTERM])
    source = WAITS.format(fifo=fifo, then="sys.exit(0)")
    assert supervisor(source, 2, endless=True).run() == 0


def test_a_child_that_dies_again_and_again_ends_it_all(caplog):
    assert supervisor("import sys; sys.exit(1)", 1).run() == 1
    assert "died 8 times in a row" in caplog.text


def test_a_mistake_that_starting_again_does_not_mend_ends_it_at_once(caplog):
    assert supervisor("import sys; sys.exit(78)", 2).run() == 78
    assert "starting it again" not in caplog.text


# A signal that comes before the wait for it is not lost: it is blocked until then.
WAITS = """
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
os.write(os.open({fifo!r}, os.O_WRONLY), b"x")
while signal.sigwait([signal.SIGTERM]): {then}
"""


def signal_when_up(fifo, numbers):
    """Signal this process as often as that, each time two children have written."""
    os.mkfifo(fifo)
    # Open for both, so that the end of one child is not the end of the file.
    both = os.open(fifo, os.O_RDWR)

    def run():
        for number in numbers:
            for _ in range(2):
                os.read(both, 1)
            # To this very thread, so that nothing but the supervisor itself ends its wait.
            signal.pthread_kill(threading.get_ident(), number)

    threading.Thread(target=run, daemon=True).start()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_children(number, tmp_path):
    fifo = str(tmp_path / "up")
    signal_when_up(fifo, [number])
    assert supervisor(WAITS.format(fifo=fifo, then="sys.exit(0)"), 2).run() == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_second_signal_decides_the_exit_code(number, code, tmp_path):
    fifo = str(tmp_path / "up")
    signal_when_up(fifo, [number, number])
    again = f"os.write(os.open({fifo!r}, os.O_WRONLY), b'x'); signal.sigwait([15]); sys.exit(0)"
    assert supervisor(WAITS.format(fifo=fifo, then=again), 2).run() == code


def test_a_child_that_is_stopped_while_it_starts_is_no_failure(tmp_path):
    fifo = str(tmp_path / "up")
    signal_when_up(fifo, [signal.SIGTERM])
    source = (
        "import os, signal\n"
        f"os.write(os.open({fifo!r}, os.O_WRONLY), b'x')\n"
        "while True: signal.pause()\n"
    )
    assert supervisor(source, 2).run() == 0


def test_its_children_get_the_end_of_a_pipe_when_it_dies():
    """The supervisor is the only one that holds the writing end."""
    source = (
        "import os, sys\n"
        "pipe = int(os.environ['DFQ_WORKER_CHILD'].split('/')[2])\n"
        "inode = os.fstat(pipe).st_ino\n"
        "held = []\n"
        "for n in range(3, pipe + 100):\n"
        "    try: held += [n] if os.fstat(n).st_ino == inode else []\n"
        "    except OSError: pass\n"
        "sys.exit(0 if held == [pipe] else 78)\n"
    )
    assert supervisor(source, 2).run() == 0


def test_what_children_write_to_stderr_is_passed_on_line_by_line(capsys):
    source = "import sys; sys.stderr.buffer.write(b'one\\n\\xff two\\n')"
    assert supervisor(source, 2, pass_on_stderr=True).run() == 0
    assert sorted(capsys.readouterr().err.splitlines()) == ["\\xff two"] * 2 + ["one"] * 2


def test_it_does_not_wait_for_what_outlives_its_children(monkeypatch):
    monkeypatch.setattr(processes, "LAST_WORDS_SECONDS", 0.01)
    # The grandchild keeps stderr open until the supervisor has ended.
    source = (
        "import os\n"
        "if os.fork() == 0:\n"
        "    os.read(int(os.environ['DFQ_WORKER_CHILD'].split('/')[2]), 1)\n"
        "os._exit(0)\n"
    )
    assert supervisor(source, 1, pass_on_stderr=True).run() == 0


def test_a_queue_in_memory_is_refused():
    options = WorkerOptions(processes=2)
    with pytest.raises(InvalidConfig, match="can't be shared by processes"):
        run(memory_queue(), functions(lambda payload: None), options)


def test_once_with_several_processes_is_refused():
    options = WorkerOptions(processes=2, once=True)
    with pytest.raises(InvalidConfig, match="single task"):
        run(memory_queue(), functions(lambda payload: None), options)


@pytest.mark.parametrize(
    ("options", "endless"), [({}, True), ({"drain": True}, False), ({"max_tasks": 5}, False)]
)
def test_processes_may_end_by_themselves_only_where_there_is_an_end(
    options, endless, tmp_path, monkeypatch
):
    asked = []

    class Noted:
        def __init__(self, *_args, endless, **_rest):
            asked.append(endless)

        def run(self):
            return 0

    monkeypatch.setattr(processes, "Supervisor", Noted)
    with dfq.open(tmp_path / "jobs") as queue:
        handlers = functions(lambda payload: None)
        assert run(queue, handlers, WorkerOptions(processes=2, **options)) == 0
    assert asked == [endless]
