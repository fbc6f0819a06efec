"""What a worker tells whoever started it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading

import pytest

from dfq.ambient import SYSTEM_CLOCK
from dfq.errors import InvalidConfig, QueueUnavailable
from dfq.testing import FakeClock, SeededChance, memory_queue
from dfq.worker.handlers import handler_set
from dfq.worker.loop import Worker
from dfq.worker.notify import Notifier, status, take_notifier
from dfq.worker.options import WorkerOptions
from dfq.worker.processes import Supervisor
from dfq.worker.watchdog import Watchdog
from tests.patience import patience

#: No test waits longer than this for something that should happen.
LONG = patience(20.0)


class Manager:
    """A service manager: hears what is sent to its socket."""

    def __init__(self, address):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(address)
        self.socket.settimeout(LONG)

    def hear(self):
        return self.socket.recv(4_096).decode().split("\n")

    def hear_until(self, line):
        """Everything up to the message with this line, or one that starts like it."""
        heard = []
        for _ in range(1_000):
            heard.append(self.hear())
            if any(said.startswith(line) for said in heard[-1]):
                return heard
        raise AssertionError(f"never heard {line}")


@pytest.fixture
def manager(tmp_path):
    made = Manager(str(tmp_path / "notify"))
    made.address = str(tmp_path / "notify")
    yield made
    made.socket.close()


@pytest.fixture
def abstract():
    name = f"dfq-test-{os.getpid()}"
    made = Manager(f"\0{name}")
    made.address = f"@{name}"
    yield made
    made.socket.close()


@pytest.mark.parametrize("kind", ["manager", "abstract"])
def test_a_message_is_one_datagram_of_lines(kind, request):
    manager = request.getfixturevalue(kind)
    notifier = take_notifier({"NOTIFY_SOCKET": manager.address})
    notifier.tell("READY=1", status("two\nlines"))
    assert manager.hear() == ["READY=1", "STATUS=two lines"]


def test_the_variables_are_taken_away_from_programs_that_are_started_later(manager):
    environment = {
        "NOTIFY_SOCKET": manager.address,
        "WATCHDOG_USEC": "3000000",
        "WATCHDOG_PID": str(os.getpid()),
        "PATH": "/bin",
    }
    assert take_notifier(environment).watchdog_seconds == 3.0
    assert environment == {"PATH": "/bin"}


@pytest.mark.parametrize(
    ("variables", "seconds"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "500000"}, 0.5),
        ({"WATCHDOG_USEC": "500000", "WATCHDOG_PID": "1"}, None),
    ],
)
def test_signs_of_life_are_given_only_if_they_are_asked_of_this_process(
    manager, variables, seconds
):
    found = take_notifier({"NOTIFY_SOCKET": manager.address, **variables})
    assert found.watchdog_seconds == seconds


@pytest.mark.parametrize("address", ["", "vsock:2:1234", "relative"])
def test_without_a_manager_nothing_is_told_and_nothing_fails(address):
    notifier = take_notifier({"NOTIFY_SOCKET": address})
    assert not notifier.heard
    notifier.tell("READY=1")


def test_a_manager_that_is_gone_is_said_once_and_no_reason_to_end(tmp_path, caplog):
    notifier = take_notifier({"NOTIFY_SOCKET": str(tmp_path / "gone")})
    notifier.tell("READY=1")
    notifier.tell("WATCHDOG=1")
    assert caplog.text.count("can't be told") == 1


def test_a_variable_that_only_dfq_sets_is_refused_if_it_makes_no_sense():
    with pytest.raises(InvalidConfig, match="only dfq itself sets it"):
        take_notifier({"DFQ_WORKER_NOTIFY": "x"})


# The watchdog


@pytest.fixture
def told():
    return []


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def watchdog(told, clock):
    made = Watchdog(Notifier(lambda m: told.append(m.decode()), 60.0), clock, lambda: "fine")
    made.begin("READY=1")
    told.clear()
    return made


def feed(watchdog, clock, seconds):
    clock.advance(seconds)
    watchdog.feed()


def test_a_sign_is_given_twice_within_the_time(watchdog, clock, told):
    for _ in range(12):
        feed(watchdog, clock, 10)
    assert told == ["WATCHDOG=1\nSTATUS=fine"] * 4


def test_no_sign_is_given_for_a_part_that_is_late_until_it_moves_again(
    watchdog, clock, told, caplog
):
    part = watchdog.part("the search for work")
    part.moves(within=100)
    feed(watchdog, clock, 159)
    assert told.pop().startswith("WATCHDOG=1")
    for _ in range(3):
        feed(watchdog, clock, 40)
    assert not [message for message in told if "WATCHDOG" in message]
    assert told[0] == "STATUS=the search for work hangs, for 39 s too long"
    assert caplog.text.count("hangs") == 1
    part.moves()
    feed(watchdog, clock, 31)
    assert told[-1].startswith("WATCHDOG=1")


def test_a_part_that_rests_is_never_late(watchdog, clock, told):
    part = watchdog.part("the heartbeat")
    part.moves()
    part.rests()
    feed(watchdog, clock, 10_000)
    assert told == ["WATCHDOG=1\nSTATUS=fine"]


def test_without_a_watchdog_no_sign_is_ever_due(told, clock):
    watchdog = Watchdog(Notifier(lambda m: told.append(m.decode())), clock, lambda: "fine")
    watchdog.begin("READY=1")
    feed(watchdog, clock, 10_000)
    assert told == ["READY=1\nSTATUS=fine"]
    assert watchdog.due_at == float("inf")


# A worker


class Run:
    """A worker in a thread, and the manager that hears of it."""

    def __init__(self, queue, manager, *functions, **options):
        environment = {"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "100000"}
        self.worker = Worker(
            queue,
            handler_set(*functions),
            WorkerOptions(**options),
            notifier=take_notifier(environment),
        )
        self.thread = threading.Thread(target=self.worker.run)
        self.thread.start()

    def stop(self):
        self.worker.stop(at_once=True)
        self.thread.join(LONG)
        assert not self.thread.is_alive()


@pytest.fixture
def begin(manager):
    begun = []

    def begin(queue, *functions, **options):
        begun.append(Run(queue, manager, *functions, **options))
        return begun[-1]

    yield begin
    for run in begun:
        if run.thread.is_alive():
            run.stop()


def signs(heard):
    return sum("WATCHDOG=1" in message for message in heard)


def test_a_worker_says_that_it_is_ready_alive_and_stopping(manager, begin):
    run = begin(memory_queue(), lambda payload: payload)
    first = manager.hear()
    assert first[0] == "READY=1"
    assert first[1].startswith("STATUS=0 completed")
    assert manager.hear()[0] == "WATCHDOG=1"
    run.stop()
    manager.hear_until("STOPPING=1")


def test_a_worker_that_is_busy_gives_signs_and_counts(manager, begin, quick_queue, happens):
    begun, go_on = threading.Event(), threading.Event()

    def handler(payload):
        begun.set()
        happens(go_on)

    quick_queue.push(1)
    run = begin(quick_queue, handler)
    happens(begun)
    manager.hear_until("STATUS=0 completed, 0 tried again, 0 failed, 1 running")
    go_on.set()
    manager.hear_until("STATUS=1 completed, 0 tried again, 0 failed, 0 running")
    run.stop()


def test_a_worker_whose_search_for_work_hangs_gives_no_more_signs(
    manager, begin, queue, proxy, happens
):
    hung, release = threading.Event(), threading.Event()

    def claim_many(*args, **options):
        hung.set()
        happens(release)
        return []

    run = begin(proxy(queue, claim_many=claim_many), lambda payload: payload)
    happens(hung)
    manager.hear_until("STATUS=the search for work hangs")
    after = [manager.hear() for _ in range(5)]
    assert signs(after) == 0
    release.set()
    manager.hear_until("WATCHDOG=1")
    run.stop()


def test_a_worker_whose_heartbeat_hangs_gives_no_more_signs(
    manager, begin, quick_queue, proxy, happens
):
    hung, release, go_on = threading.Event(), threading.Event(), threading.Event()

    def heartbeat_many(leases, **options):
        hung.set()
        happens(release)
        return leases

    quick_queue.push(1)
    run = begin(proxy(quick_queue, heartbeat_many=heartbeat_many), lambda payload: happens(go_on))
    happens(hung)
    manager.hear_until("STATUS=the heartbeat hangs")
    assert signs([manager.hear() for _ in range(5)]) == 0
    release.set()
    manager.hear_until("WATCHDOG=1")
    go_on.set()
    run.stop()


def test_a_worker_whose_main_thread_hangs_gives_no_more_signs(manager, begin, queue, happens):
    """It gives the signs itself, so there is nothing that could give them in its place."""
    run = begin(queue, lambda payload: payload)
    manager.hear_until("WATCHDOG=1")
    hung, release = threading.Event(), threading.Event()

    def patience():
        hung.set()
        happens(release)
        return 0

    run.worker._patience = patience
    run.worker._inbox.put("")
    happens(hung)
    manager.socket.settimeout(0.0)
    with pytest.raises(BlockingIOError):
        for _ in range(100):
            manager.hear()
    manager.socket.settimeout(1.0)
    with pytest.raises(TimeoutError):  # ten times the time within which a sign is due
        manager.hear()
    release.set()
    manager.socket.settimeout(LONG)
    del run.worker._patience
    manager.hear_until("WATCHDOG=1")
    run.stop()


def test_a_worker_whose_queue_fails_tries_on_and_is_alive(manager, begin, queue, proxy):
    """Its pauses are longer than the time within which anything else would have to move."""

    def claim_many(*args, **options):
        raise QueueUnavailable("the disk is full")

    run = begin(proxy(queue, claim_many=claim_many), lambda payload: payload)
    heard = [manager.hear() for _ in range(20)]
    assert signs(heard) == 19
    run.stop()


# Several processes

CHILD = """
import os, sys, threading
from dfq.worker.notify import take_notifier
notifier = take_notifier()
assert "DFQ_WORKER_NOTIFY" not in os.environ
number = os.environ["DFQ_WORKER_CHILD"].split("/")[0]
mark = os.path.join({folder!r}, "hung-" + number)
notifier.tell("READY=1")
while True:
    if number == "2" and not os.path.exists(mark):
        open(mark, "w").close()
        threading.Event().wait()
    notifier.tell("WATCHDOG=1")
    if all(os.path.exists(os.path.join({folder!r}, name)) for name in ("hung-2", "end")):
        sys.exit(0)
    threading.Event().wait(notifier.watchdog_seconds / 4)
"""


class NoPatience(SeededChance):
    def uniform(self, low, high):
        return 0.001


def test_a_process_that_hangs_is_ended_and_started_again_while_the_service_lives(
    manager, tmp_path, monkeypatch, caplog
):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(p for p in sys.path if p))
    supervisor = Supervisor(
        [sys.executable, "-c", CHILD.format(folder=str(tmp_path))],
        2,
        SYSTEM_CLOCK,
        NoPatience(),
        notifier=take_notifier({"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "1000000"}),
    )
    codes = []
    thread = threading.Thread(target=lambda: codes.append(supervisor.run()))
    thread.start()
    heard = manager.hear_until("READY=1")
    assert signs(heard) == 0, "it is not alive before it is ready"
    assert heard[-1][1] == "STATUS=2 of 2 processes run"
    manager.hear_until("WATCHDOG=1")
    while "died (signal 6)" not in caplog.text:
        manager.hear_until("WATCHDOG=1")
    (tmp_path / "end").touch()
    thread.join(LONG)
    assert codes == [0]
    assert "worker process 2 gives no sign of life; ending it" in caplog.text


# A worker as a process of its own


def test_a_worker_under_a_manager_tells_it_how_it_goes_and_its_programs_do_not(manager, tmp_path):
    source = (
        "import dfq, sys\n"
        f"queue = dfq.open({str(tmp_path / 'jobs')!r})\n"
        "queue.push(1, id='a')\n"
        "from dfq.worker import WorkerOptions, command, run\n"
        "print(run(queue, command('sh -c \"env | grep -c -e NOTIFY -e WATCHDOG || true\"'),\n"
        "          WorkerOptions(drain=True)))\n"
    )
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("DFQ_")},
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        "NOTIFY_SOCKET": manager.address,
        "WATCHDOG_USEC": "60000000",
    }
    ran = subprocess.run(
        [sys.executable, "-c", source],
        env=environment,
        capture_output=True,
        text=True,
        timeout=patience(60),
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (0, "0\n"), ran.stderr
    assert manager.hear()[0] == "READY=1"
    (result,) = (tmp_path / "jobs").glob("completed/*/a/result.json")
    assert result.read_text() == "0"
