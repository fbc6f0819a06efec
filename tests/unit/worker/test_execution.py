"""Programs as handlers."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading

import pytest

from dfq.errors import HandlerError, Reject, RetryLater
from dfq.policy import Policy
from dfq.testing import memory_queue
from dfq.worker import execution
from dfq.worker.context import TaskContext
from dfq.worker.execution import CommandFailed, command_handlers


@pytest.fixture(params=["pidfd", "no pidfd"], autouse=True)
def both_ways(request, monkeypatch):
    """With and without a way to wait for a process and its pipes together."""
    if request.param == "no pidfd":
        monkeypatch.setattr(execution, "_open_pidfd", lambda pid: None)


def run(line, payload=None, *, queue=None, cancel_when=None, **options):
    queue = queue or memory_queue()
    queue.push(payload, **options)
    context = TaskContext(queue, queue.claim("w"))
    if cancel_when is not None:
        cancel_when(context)
    return command_handlers(line).find(context.task).invoke(context)


def python(source):
    return shlex.join([sys.executable, "-S", "-c", source])


def test_the_payload_is_on_stdin_and_json_on_stdout_is_the_result():
    assert run("cat", {"a": [1, None]}) == {"a": [1, None]}


def test_other_output_is_the_result_as_text():
    assert run("echo hello 'big   world'") == "hello big   world"


def test_no_output_is_no_result():
    assert run("true") is None


def test_the_environment_says_which_task_it_is():
    queue = memory_queue()
    result = run(
        python(
            "import os, json; print(json.dumps({k: v for k, v in os.environ.items() "
            "if k.startswith('DFQ_')}))"
        ),
        queue=queue,
        id="a",
        name="enrich",
        correlation_id="corr",
    )
    expected = {
        "DFQ_TASK_ID": "a",
        "DFQ_TASK_NAME": "enrich",
        "DFQ_FENCE": "1",
        "DFQ_ATTEMPT": "1",
        "DFQ_CORRELATION_ID": "corr",
        "DFQ_QUEUE_URL": queue.url,
    }
    assert {key: result[key] for key in expected} == expected


def test_exit_75_means_try_again_later():
    with pytest.raises(RetryLater, match="rate limit"):
        run("sh -c 'echo rate limit >&2; exit 75'")


def test_exit_100_means_never():
    with pytest.raises(Reject, match="not a city"):
        run("sh -c 'echo not a city >&2; exit 100'")


def test_any_other_exit_code_is_a_failure_with_the_end_of_stderr():
    with pytest.raises(CommandFailed) as caught:
        run(python("import sys; sys.stderr.write('x' * 100_000 + ' the end'); sys.exit(3)"))
    said = str(caught.value)
    assert said.startswith("exit code 3: ")
    assert said.endswith(" the end")
    assert len(said) < 3_000


def test_a_program_killed_by_a_signal_is_a_failure():
    with pytest.raises(CommandFailed, match="killed by SIGSEGV"):
        run("sh -c 'kill -SEGV $$'")


def test_there_is_no_shell():
    assert run("echo '$HOME' ';' '|' '*'") == "$HOME ; | *"


def test_a_large_payload_that_nobody_reads_does_not_block():
    assert run("true", "x" * 500_000) is None


def test_a_large_payload_arrives_whole_while_as_much_comes_back():
    assert run("cat", "x" * 500_000) == "x" * 500_000


def test_output_beyond_the_limit_is_cut_and_still_can_be_stored():
    queue = memory_queue(policy=Policy(max_result_bytes=1_000))
    result = run(python("print('é' * 1_000_000)"), queue=queue)
    assert result.endswith("…")
    (lease,) = queue.leases()
    queue.ack(lease, result)


def test_output_that_is_not_utf_8_is_kept_as_well_as_it_can_be():
    assert run(python(r"import os; os.write(1, b'a\xff b')")) == "a\ufffd b"


def test_a_grandchild_that_keeps_the_pipes_open_is_not_waited_for(tmp_path):
    source = (
        "import os, sys, time\n"
        "if os.fork() == 0:\n"
        f"    with open({str(tmp_path / 'new')!r}, 'w') as new: new.write(str(os.getpid()))\n"
        f"    os.rename({str(tmp_path / 'new')!r}, {str(tmp_path / 'pid')!r})\n"
        "    time.sleep(600)\n"
        f"while not (os.path.exists({str(tmp_path / 'pid')!r})): time.sleep(0.001)\n"
        "print('parent done', flush=True)\n"
    )
    assert run(python(source)) == "parent done"
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


def test_cancelling_kills_the_whole_process_group(tmp_path):
    os.mkfifo(tmp_path / "alive")
    # The grandchild holds the pipe; its end is the end of both processes.
    line = shlex.join(["sh", "-c", f"(echo up; exec sleep 600) > {tmp_path}/alive & wait"])
    opened = threading.Event()
    readers = []

    def cancel_when_up(context):
        def read_then_cancel():
            stream = (tmp_path / "alive").open()
            readers.append(stream)
            stream.readline()
            opened.set()
            context.cancelled.set("timeout")

        threading.Thread(target=read_then_cancel, daemon=True).start()

    with pytest.raises(CommandFailed, match="killed by SIGKILL"):
        run(line, cancel_when=cancel_when_up)
    assert opened.is_set()
    assert readers[0].read() == ""
    readers[0].close()


def test_a_program_cancelled_before_it_starts_is_killed():
    with pytest.raises(CommandFailed, match="killed by SIGKILL"):
        run("sleep 600", cancel_when=lambda context: context.cancelled.set("stopping"))


def test_no_process_is_left_as_a_zombie():
    pid = run(python("import os; print(os.getpid())"))
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("no-such-program-anywhere", "there is no program 'no-such-program-anywhere'"),
        ("", "the command is empty"),
        ("echo 'open", "can't be read: No closing quotation"),
    ],
)
def test_a_command_that_can_not_be_run_is_refused_before_any_task_is_claimed(line, said):
    with pytest.raises(HandlerError, match=said):
        command_handlers(line)


def test_a_program_that_vanishes_later_is_a_failure_of_the_task(tmp_path):
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    handlers = command_handlers(str(program))
    program.unlink()
    queue = memory_queue()
    queue.push(1)
    context = TaskContext(queue, queue.claim("w"))
    with pytest.raises(CommandFailed, match="can't be started"):
        handlers.find(context.task).invoke(context)
