"""A worker as people start it: a process, on a queue in a folder."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading

import pytest

import dfq
from dfq.policy import Policy, RetryPolicy
from dfq.worker.health import check
from tests.patience import patience

LONG = patience(30.0)
STOPPING = "signal again to stop at once"

TASKS = '''
import asyncio, os, signal, sys, threading, time
import dfq


def up(word="up"):
    """Tell the test how far we are."""
    pipe = os.open(os.environ["UP"], os.O_WRONLY)
    os.write(pipe, f"{word}\\n".encode())
    os.close(pipe)


def work(payload):
    return payload


def begin_and_wait(ctx, payload):
    up()
    with open(os.environ["GO"]) as gate:
        gate.read()
    return [ctx.attempt, ctx.fence]


def hang(payload):
    up()
    threading.Event().wait()


def kill_itself(payload):
    os.kill(os.getpid(), signal.SIGKILL)


def fork_and_return(payload):
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def fail(payload):
    raise ValueError(f"no such city: {payload}")


def note(payload):
    """Append a line: each task that ran leaves one."""
    with open(os.environ["NOTES"], "a") as notes:
        notes.write(f"{payload}\\n")


@dfq.task
def add(x: int, y: int) -> int:
    return x + y


@dfq.task
async def later(x: int) -> int:
    await asyncio.sleep(0)
    return x
'''


class Place:
    """A folder with a queue, a module of tasks, and pipes to talk to them."""

    def __init__(self, folder):
        self.folder = folder
        self.path = folder / "q"
        (folder / "tasks.py").write_text(TASKS)
        for pipe in ("up", "go"):
            os.mkfifo(folder / pipe)
        # Open for both, so that nobody finds the pipe without its other end.
        self._up = os.open(folder / "up", os.O_RDWR)
        self.queue = dfq.open(self.path, policy=Policy(retry=RetryPolicy(base_seconds=0)))
        self._started = []

    def start(self, *arguments, handler="tasks:work", **environment):
        command = [sys.executable, "-m", "dfq", "worker", str(self.path), *arguments]
        if handler is not None:
            command += ["--handler", handler]
        process = subprocess.Popen(
            command,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                "PYTHONDONTWRITEBYTECODE": "1",
                "UP": str(self.folder / "up"),
                "GO": str(self.folder / "go"),
                "NOTES": str(self.folder / "notes"),
                **environment,
            },
        )
        self._started.append(process)
        return process

    def run(self, *arguments, **options):
        """Run a worker to its end."""
        return self.end(self.start(*arguments, **options))

    def end(self, process):
        out, err = process.communicate(timeout=LONG)
        return process.returncode, out + err

    def wait_until_said(self, process, words, times=1):
        """Wait until a worker has logged this."""
        for line in process.stderr:
            times -= words in line
            if not times:
                return
        raise AssertionError(f"the worker ended without saying {words!r}")

    def wait_until_up(self):
        """Wait for one word from a handler."""
        word = b""
        while not word.endswith(b"\n"):
            word += os.read(self._up, 1)
        return word.decode().strip()

    def go_on(self):
        """Let a handler that waits finish."""
        os.close(os.open(self.folder / "go", os.O_WRONLY))

    def go_on_until_ended(self, worker):
        """Let handlers that wait finish, as many as there are: one opening may serve several."""
        pause = threading.Event()
        while worker.poll() is None:
            # Nobody waits: not yet, or not any more.
            with contextlib.suppress(OSError):
                os.close(os.open(self.folder / "go", os.O_WRONLY | os.O_NONBLOCK))
            pause.wait(0.05)

    def close(self):
        for process in self._started:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.communicate(timeout=LONG)
        os.close(self._up)
        self.queue.close()


@pytest.fixture
def place(tmp_path):
    """A queue in a folder, and workers on it."""
    made = Place(tmp_path)
    yield made
    made.close()


def test_decorated_tasks_of_a_module_run(place):
    place.queue.push({"args": [1, 2], "kwargs": {}}, id="a", name="add")
    place.queue.push({"args": [7]}, id="b", name="later")
    code, said = place.run("--drain", "--concurrency", "2", handler="tasks")
    assert (code, place.queue.get("a").result, place.queue.get("b").result) == (0, 3, 7), said


def test_sigterm_lets_the_running_task_finish_and_takes_no_other(place):
    place.queue.push(1, id="a", priority="high")
    place.queue.push(2, id="b")
    worker = place.start(handler="tasks:begin_and_wait")
    place.wait_until_up()
    worker.send_signal(signal.SIGTERM)
    place.wait_until_said(worker, STOPPING)
    place.go_on()
    code, said = place.end(worker)
    assert code == 0, said
    assert place.queue.get("a").result[0] == 1
    assert place.queue.get("b").state == "ready"


def test_ctrl_c_puts_the_running_task_back_when_the_grace_time_is_over(place):
    place.queue.push(1, id="a")
    worker = place.start("--grace", "0", handler="tasks:hang")
    place.wait_until_up()
    worker.send_signal(signal.SIGINT)
    code, said = place.end(worker)
    assert code == 0, said
    assert "Traceback" not in said
    record = place.queue.get("a")
    assert (record.state, record.task.attempts) == ("ready", 0)


@pytest.mark.parametrize(("number", "expected"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_second_signal_stops_at_once(place, number, expected):
    place.queue.push(1, id="a")
    worker = place.start("--grace", "3600", handler="tasks:hang")
    place.wait_until_up()
    worker.send_signal(number)
    place.wait_until_said(worker, STOPPING)
    worker.send_signal(number)
    code, said = place.end(worker)
    assert code == expected, said
    assert place.queue.get("a").state == "ready"


def test_an_idle_worker_ends_on_sigterm(place):
    place.queue.push(1, id="a")
    worker = place.start()
    place.wait_until_said(worker, "completed in")
    worker.send_signal(signal.SIGTERM)
    code, said = place.end(worker)
    assert code == 0, said


def test_a_worker_killed_at_work_loses_nothing_and_the_next_takes_over(place):
    place.queue.push(1, id="a")
    first = place.start(handler="tasks:begin_and_wait")
    place.wait_until_up()
    first.kill()
    first.wait(LONG)
    second = place.start("--drain", handler="tasks:begin_and_wait")
    place.wait_until_up()
    place.go_on()
    code, said = place.end(second)
    assert code == 0, said
    record = place.queue.get("a")
    assert record.state == "completed"
    attempt, fence = record.result
    assert attempt == 2
    assert fence >= 2
    assert [error.kind for error in record.task.errors] == ["crash"]


def test_a_handler_that_kills_its_worker_ends_in_failed_with_its_history(place):
    place.queue.push(1, id="a", max_attempts=2)
    code, said = place.run(
        "--drain", "--processes", "2", handler="tasks:kill_itself", PYTHONUNBUFFERED="1"
    )
    assert code == 0, said
    assert "died (signal 9)" in said
    record = place.queue.get("a")
    assert record.state == "failed"
    assert [error.kind for error in record.task.errors] == ["crash", "crash"]


def test_two_workers_of_the_same_name_do_each_task_once(place):
    place.queue.push_many(place.queue.new_task(number) for number in range(100))
    workers = [
        place.start("--drain", "--worker-id", "twin", handler="tasks:note") for _ in range(2)
    ]
    for worker in workers:
        code, said = place.end(worker)
        assert code == 0, said
    notes = (place.folder / "notes").read_text().split()
    assert sorted(notes, key=int) == [str(number) for number in range(100)]
    assert place.queue.stats().completed == 100


def test_a_handler_that_hangs_fails_by_timeout_and_others_go_on(place):
    place.queue.push(1, id="a", max_attempts=1)
    code, said = place.run("--drain", "--timeout", "0.2", handler="tasks:hang")
    assert code == 0, said
    (error,) = place.queue.get("a").task.errors
    assert error.kind == "timeout"


def test_a_handler_that_forks_is_settled_once(place):
    place.queue.push(1, id="a")
    code, said = place.run("--drain", handler="tasks:fork_and_return")
    assert code == 0, said
    assert place.queue.get("a").result == 70
    assert "came back into the worker and is ended" in said


def test_a_handler_that_raises_leaves_its_words_and_its_line(place):
    place.queue.push("Bern", id="a", max_attempts=2)
    code, said = place.run("--drain", handler="tasks:fail")
    assert code == 0, said
    errors = place.queue.get("a").task.errors
    assert len(errors) == 2
    assert errors[0].message.startswith("ValueError: no such city: Bern")
    assert "tasks.py" in errors[0].message


def test_a_handler_that_can_not_be_imported_is_told_before_anything_is_claimed(place):
    place.queue.push(1, id="a")
    (place.folder / "broken.py").write_text("x = 1\nimport no_such_thing\n")
    code, said = place.run(handler="broken:work")
    assert code == 78
    assert "No module named 'no_such_thing'" in said
    assert "broken.py, line 2" in said
    assert "Traceback" not in said
    assert place.queue.get("a").task.attempts == 0


def test_a_folder_deleted_under_an_idle_worker_ends_it_with_a_clear_message(place):
    place.queue.push(1, id="a")
    worker = place.start()
    place.wait_until_said(worker, "completed in")
    shutil.rmtree(place.path)
    code, said = place.end(worker)
    assert code == 1
    assert "folder is gone" in said
    assert "Traceback" not in said


def test_a_program_decides_by_its_exit_code(place):
    place.queue.push({"n": 1}, id="a")
    code, said = place.run("--exec", "sh -c 'cat; exit 0'", "--drain", handler=None)
    assert (code, place.queue.get("a").result) == (0, {"n": 1}), said
    place.queue.push({"n": 2}, id="b")
    code, said = place.run("--exec", "sh -c 'exit 75'", "--once", handler=None)
    assert (code, place.queue.get("b").task.attempts) == (1, 0), said


def test_once_says_that_there_is_nothing(place):
    code, said = place.run("--once")
    assert code == 3, said


def test_json_lines_name_the_task_in_every_line_about_it(place):
    place.queue.push(1, id="a", correlation_id="corr")
    code, said = place.run("--drain", "--log-json")
    assert code == 0
    lines = [json.loads(line) for line in said.splitlines()]
    about = [line for line in lines if line.get("task_id") == "a"]
    assert about
    assert {line["correlation_id"] for line in about} == {"corr"}


def test_the_liveness_file_is_there_while_the_worker_is(place):
    place.queue.push(1, id="a")
    health = place.folder / "health.json"
    worker = place.start("--health", str(health), handler="tasks:begin_and_wait")
    place.wait_until_up()
    verdict = check(str(health), 60)
    assert verdict.alive, verdict.message
    assert verdict.workers[0]["pid"] == worker.pid
    worker.send_signal(signal.SIGTERM)
    place.go_on()
    place.end(worker)
    assert not health.exists()


def test_several_processes_drain_the_queue_together(place):
    place.queue.push_many(place.queue.new_task(number) for number in range(60))
    code, said = place.run("--drain", "--processes", "3", handler="tasks:note")
    assert code == 0, said
    notes = (place.folder / "notes").read_text().split()
    assert sorted(notes, key=int) == [str(number) for number in range(60)]


def test_sigterm_to_the_supervisor_lets_all_its_processes_finish(place):
    place.queue.push_many(place.queue.new_task(number) for number in range(4))
    worker = place.start("--processes", "2", handler="tasks:begin_and_wait")
    place.wait_until_up()
    place.wait_until_up()
    worker.send_signal(signal.SIGTERM)
    place.wait_until_said(worker, STOPPING, times=2)
    opening = threading.Thread(target=place.go_on_until_ended, args=(worker,))
    opening.start()
    code, said = place.end(worker)
    opening.join(LONG)
    assert code == 0, said
    assert (place.queue.stats().completed, place.queue.stats().ready) == (2, 2)


def test_processes_end_when_their_supervisor_is_killed(place):
    place.queue.push(1, id="a")
    worker = place.start("--processes", "2", "--log-json", handler="tasks:begin_and_wait")
    place.wait_until_up()
    worker.kill()
    place.go_on()
    # The children hold stderr too: its end is the end of the last of them.
    _, said = place.end(worker)
    assert said.count("the supervisor is gone; stopping") == 2
    assert place.queue.get("a").state == "completed"


def test_a_process_that_is_killed_is_started_again(place):
    place.queue.push(1, id="a")
    worker = place.start("--processes", "1", "--processes", "2", handler="tasks:begin_and_wait")
    place.wait_until_up()
    holder = place.queue.get("a").lease.pid
    assert holder != worker.pid
    os.kill(holder, signal.SIGKILL)
    place.wait_until_up()
    worker.send_signal(signal.SIGTERM)
    place.go_on()
    code, said = place.end(worker)
    assert code == 0, said
    assert place.queue.get("a").result[0] == 2


def test_a_mistake_is_told_once_whatever_the_number_of_processes(place):
    code, said = place.run("--processes", "3", "--name", "other", handler="tasks")
    assert code == 78
    assert said.count("no handler for tasks named 'other'") == 1
    assert "Traceback" not in said
