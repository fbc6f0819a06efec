"""The command line as a process of its own, on a folder."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

import dfq

PACKAGE = Path(dfq.__file__).parents[1]


@pytest.fixture
def environment(tmp_path):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("DFQ_")}
    return {**clean, "PYTHONPATH": str(PACKAGE), "HOME": str(tmp_path)}


@pytest.fixture
def run(tmp_path, environment):
    def run(*words, stdin="", **variables):
        return subprocess.run(
            [sys.executable, "-m", "dfq", *words],
            input=stdin,
            cwd=tmp_path,
            env=environment | variables,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    return run


def test_push_work_and_look_in_three_processes(run):
    assert run("push", "jobs", "-", stdin='{"n": 1}\n{"n": 2}\n').stdout == "pushed 2 tasks\n"
    worked = run("worker", "jobs", "--exec", "cat", "--drain")
    assert worked.returncode == 0, worked.stderr
    stats = orjson.loads(run("stats", "jobs", "--json").stdout)
    assert (stats["completed"], stats["pending"]) == (2, 0)
    results = [
        orjson.loads(line)["result"] for line in run("ls", "jobs", "--json").stdout.splitlines()
    ]
    assert sorted(result["n"] for result in results) == [1, 2]


def test_a_handler_is_found_where_the_worker_is_started(run, tmp_path):
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "mod.py").write_text("def function(payload):\n    return payload + 1\n")
    run("push", "jobs", "41", "--id", "t")
    assert run("worker", "jobs", "--handler", "pkg.mod:function", "--drain").returncode == 0
    assert orjson.loads(run("show", "jobs", "t", "--json").stdout)["result"] == 42


def test_the_policy_that_init_wrote_holds(run):
    assert run("init", "jobs", "--max-attempts", "1").returncode == 0
    run("push", "jobs", "1", "--id", "t")
    assert run("worker", "jobs", "--exec", "false", "--once").returncode == 1
    record = orjson.loads(run("show", "jobs", "t", "--json").stdout)
    assert (record["state"], record["attempts"]) == ("failed", 1)


def test_init_makes_a_flat_queue(run, tmp_path):
    run("init", "jobs", "--layout", "flat")
    run("push", "jobs", "1", "--id", "t")
    assert (tmp_path / "jobs" / "pending" / "t" / "task.json").exists()


def test_a_program_pushes_into_the_queue_it_works_for(run, tmp_path):
    (tmp_path / "again.sh").write_text(
        f'#!/bin/sh\nexec "{sys.executable}" -m dfq push "from=$DFQ_TASK_ID" --id child\n'
    )
    (tmp_path / "again.sh").chmod(0o755)
    run("push", "jobs", "1", "--id", "parent")
    worked = run("worker", "jobs", "--exec", "./again.sh", "--once")
    assert worked.returncode == 0, worked.stderr
    child = orjson.loads(run("show", "jobs", "child", "--json").stdout)
    assert child["payload"] == {"from": "parent"}


def test_a_program_starts_a_worker_of_its_own_under_several_processes(run, tmp_path):
    """What marks the processes of a worker does not reach the programs they run."""
    (tmp_path / "inner.sh").write_text(
        "#!/bin/sh\n"
        "env | grep ^DFQ_WORKER_CHILD && exit 100\n"
        f'exec "{sys.executable}" -m dfq worker inner --exec cat --max-tasks 1\n'
    )
    (tmp_path / "inner.sh").chmod(0o755)
    run("push", "inner", "1", "--id", "t")
    run("push", "jobs", "1", "--id", "starter")
    worked = run("worker", "jobs", "--exec", "./inner.sh", "--processes", "2", "--drain")
    assert worked.returncode == 0, worked.stderr
    starter = orjson.loads(run("show", "jobs", "starter", "--json").stdout)
    assert starter["state"] == "completed", worked.stderr
    assert orjson.loads(run("show", "inner", "t", "--json").stdout)["state"] == "completed"


def test_a_reader_that_goes_away_is_no_error(run, tmp_path, environment):
    run("push", "jobs", "-", stdin="1\n" * 3000)
    listing = subprocess.Popen(
        [sys.executable, "-m", "dfq", "ls", "jobs", "--json"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert listing.stdout is not None
    listing.stdout.readline()
    listing.stdout.close()
    assert listing.stderr is not None
    said = listing.stderr.read()
    listing.stderr.close()
    assert listing.wait(timeout=60) == 141
    assert said == b""


def test_ctrl_c_ends_top_with_130_and_without_a_traceback(run, tmp_path, environment):
    run("push", "jobs", "1")
    top = subprocess.Popen(
        [sys.executable, "-m", "dfq", "top", "jobs", "--json", "--interval", "30"],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert top.stdout is not None
    assert orjson.loads(top.stdout.readline())["ready"] == 1
    top.send_signal(signal.SIGINT)
    _, said = top.communicate(timeout=60)
    assert top.returncode == 130
    assert b"Traceback" not in said


def test_q_ends_top_on_a_terminal(run, tmp_path, environment):
    run("push", "jobs", "1")
    master, slave = pty.openpty()
    top = subprocess.Popen(
        [sys.executable, "-m", "dfq", "top", "jobs", "--interval", "30"],
        cwd=tmp_path,
        env={**environment, "TERM": "xterm"},
        stdin=slave,
        stdout=slave,
        stderr=slave,
    )
    os.close(slave)
    try:
        shown = b""
        while b"q quits" not in shown:
            shown += os.read(master, 65536)
        os.write(master, b"q")
        assert top.wait(timeout=60) == 0
    finally:
        os.close(master)


@pytest.mark.parametrize(("answer", "code", "left"), [(b"n\n", 130, 1), (b"y\n", 0, 0)])
def test_purge_asks_on_a_terminal(run, tmp_path, environment, answer, code, left):
    run("push", "jobs", "1")
    master, slave = pty.openpty()
    purge = subprocess.Popen(
        [sys.executable, "-m", "dfq", "purge", "jobs"],
        cwd=tmp_path,
        env=environment,
        stdin=slave,
        stdout=slave,
        stderr=slave,
    )
    os.close(slave)
    try:
        shown = b""
        while b"[y/N]" not in shown:
            shown += os.read(master, 65536)
        os.write(master, answer)
        assert purge.wait(timeout=60) == code
    finally:
        os.close(master)
    assert orjson.loads(run("stats", "jobs", "--json").stdout)["pending"] == left


def drawn(arguments, tmp_path, environment):
    """Run Python with a terminal as stderr; what it drew there."""
    master, slave = pty.openpty()
    with subprocess.Popen(
        [sys.executable, *arguments],
        cwd=tmp_path,
        env={**environment, "TERM": "xterm", "COLUMNS": "200"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=slave,
    ) as process:
        os.close(slave)
        shown = b""
        try:
            while chunk := os.read(master, 65536):
                shown += chunk
        except OSError:  # the other end of the terminal is closed
            pass
        finally:
            os.close(master)
        assert process.wait(timeout=60) == 0, shown
    return shown.decode()


def test_a_progress_bar_is_drawn_on_a_terminal(run, tmp_path, environment):
    (tmp_path / "rows.jsonl").write_text("1\n" * 5000)
    words = ["-m", "dfq", "push", "jobs", "--file", "rows.jsonl"]
    assert "pushing rows.jsonl" in drawn(words, tmp_path, environment)
    assert orjson.loads(run("stats", "jobs", "--json").stdout)["ready"] == 5000


WITHOUT_RICH = "import sys; sys.modules['rich'] = None; from dfq.cli import main; main()"


@pytest.mark.parametrize("start", [["-m", "dfq"], ["-c", WITHOUT_RICH]], ids=["rich", "no rich"])
def test_several_processes_share_one_progress_bar(run, tmp_path, environment, start):
    run("push", "jobs", "1", "--priority", "high")
    run("worker", "jobs", "--exec", "cat", "--once")
    run("push", "jobs", "-", stdin="1\n" * 20)
    run("push", "jobs", "1", "--priority", "low")
    words = "worker jobs --exec cat --drain --processes 2 --min-priority normal"
    shown = drawn([*start, *words.split()], tmp_path, environment)
    assert "draining" in shown
    # Neither what was done before nor what is not for them counts in the end.
    assert "20/20" in shown
    assert shown.count(": completed in ") == 20


#: Neither click nor orjson imports these, and counting tasks needs none of them.
HEAVY = """
    asyncio boto3 concurrent csv difflib email hashlib http importlib.metadata logging
    multiprocessing pathlib random rich selectors shutil socket sqlite3 ssl subprocess tempfile
    tomllib unittest urllib urllib.parse urllib.request uvloop xml
    dfq.config dfq.engines.memory dfq.handler dfq.queue dfq.testing dfq.worker
    dfq.cli.commands.ls dfq.cli.commands.push dfq.cli.commands.top dfq.cli.commands.worker
"""


@pytest.mark.parametrize("tasks", [0, 3])
def test_stats_imports_nothing_heavy(run, tmp_path, environment, tasks):
    run("init", "jobs")
    for _ in range(tasks):
        run("push", "jobs", "1")
    program = (
        "import sys, atexit\n"
        "atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
        "sys.argv = ['dfq', 'stats', 'jobs']\n"
        "from dfq.cli import main\n"
        "main()\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    modules = set(ran.stderr.split())
    assert "dfq.cli.commands.stats" in modules
    assert modules & set(HEAVY.split()) == set()


def test_an_old_encoding_of_the_terminal_breaks_nothing(run):
    payload = '{"city": "東京"}'
    assert run("push", "jobs", payload, "--id", "t", PYTHONIOENCODING="latin-1").returncode == 0
    shown = run("show", "jobs", "t", PYTHONIOENCODING="latin-1")
    assert shown.returncode == 0
    assert "\\u6771" in shown.stdout
    document = run("show", "jobs", "t", "--json", PYTHONIOENCODING="latin-1").stdout
    assert orjson.loads(document)["payload"] == {"city": "東京"}


def test_arguments_that_are_not_utf_8_are_told(run):
    for words in (["jobs", "a=\udcff"], ["jobs", "1", "--id", "\udcff"], ["jobs", "{\udcff}"]):
        ran = run("push", *words)
        assert ran.returncode == 65, ran.stderr
        assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("there", [True, False], ids=["there", "not there"])
@pytest.mark.parametrize(
    "command", [["push", "a=1"], ["stats"], ["ls"], ["doctor"], ["init"], ["worker", "--exec=cat"]]
)
def test_a_queue_whose_path_is_not_utf_8_is_told(run, tmp_path, command, there):
    odd = os.fsdecode(b"q\xff")
    if there:
        (tmp_path / odd).mkdir()
    verb, *rest = command
    for ran in (run(verb, odd, *rest), run(verb, *rest, DFQ_QUEUE_URL=odd)):
        assert ran.returncode == 64, ran.stderr
        assert "not UTF-8" in ran.stderr
        assert "Traceback" not in ran.stderr
    assert (tmp_path / odd).exists() == there


def test_an_id_may_begin_with_a_dash(run):
    run("push", "jobs", "1", "--id=--all")
    assert run("cancel", "jobs", "--", "--all").stdout == "cancelled --all\n"


def test_the_version_is_printed(run):
    assert run("--version").stdout.split()[0] == "dfq"


def test_a_file_in_the_way_of_a_folder_is_named(run, tmp_path):
    (tmp_path / "file").write_text("")
    ran = run("push", "file/jobs", "1")
    assert ran.returncode == 74
    assert "Traceback" not in ran.stderr
    assert f"{tmp_path / 'file'} is a file" in ran.stderr


def test_the_command_is_installed_under_its_name(environment):
    from importlib.metadata import entry_points

    (entry,) = entry_points(group="console_scripts", name="dfq")
    assert entry.value == "dfq.cli:main"
