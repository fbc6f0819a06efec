"""Stores that go away, come back, or take their time: workers wait, and lose nothing."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dfq.policy import Policy, RetryPolicy
from dfq.testing import SeededChance
from tests.integration.s3.restartable import Restartable
from tests.servers.misfortune import Plan
from tests.servers.proxy import faulty_proxy

POLICY = Policy(retry=RetryPolicy(base_seconds=0.0))
LONG = 100.0


@pytest.fixture
def restartable(tmp_path: Path) -> Iterator[Restartable]:
    """A server in the test's hand, running."""
    folder = tmp_path / "server"
    folder.mkdir()
    server = Restartable(folder)
    try:
        server.start()
        yield server
    finally:
        server.stop()


class Lines:
    """The lines that a process writes, as they come."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._changed = threading.Condition()
        self._lines: list[str] = []
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            with self._changed:
                self._lines.append(line)
                self._changed.notify_all()

    def text(self) -> str:
        with self._changed:
            return "".join(self._lines)

    def wait_for(self, words: str) -> None:
        with self._changed:
            seen = self._changed.wait_for(lambda: any(words in line for line in self._lines), LONG)
        assert seen, f"it never said {words!r}:\n{self.text()}"

    def end(self) -> int:
        code = self._process.wait(LONG)
        self._thread.join(LONG)
        return code


@pytest.mark.timeout(300)
def test_a_store_that_is_restarted_under_a_worker_loses_nothing(
    restartable, trust, opened, environment, tmp_path
):
    url = restartable.server.url("q")
    trust(url)
    queue = opened(url, policy=POLICY)
    pushed = [one.id for one in queue.push_many([queue.new_task(n) for n in range(40)])]
    # Each task leaves a line; the tenth waits until the store is gone.
    (tmp_path / "work.sh").write_text(
        "#!/bin/sh\n"
        "read payload\n"
        'echo "$DFQ_TASK_ID" >> runs\n'
        '[ "$(wc -l < runs)" = 10 ] && { echo ready > up; read go < go; }\n'
        "exit 0\n"
    )
    (tmp_path / "work.sh").chmod(0o755)
    for pipe in ("up", "go"):
        subprocess.run(["mkfifo", str(tmp_path / pipe)], check=True)
    worker = subprocess.Popen(
        [sys.executable, "-m", "dfq", "worker", url, "--exec", "./work.sh", "--drain"],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    with worker:
        try:
            lines = Lines(worker)
            assert (tmp_path / "up").read_text() == "ready\n"
            restartable.stop()
            (tmp_path / "go").write_text("now\n")
            lines.wait_for("outcome not written yet, trying on")
            restartable.start()
            assert lines.end() == 0, lines.text()
        finally:
            worker.kill()
    assert "Traceback" not in lines.text()
    assert sorted((tmp_path / "runs").read_text().split()) == sorted(pushed)
    records = {record.task.id: record for record in queue.list()}
    assert records.keys() == set(pushed)
    assert {(one.state, one.task.attempts) for one in records.values()} == {("completed", 1)}


@pytest.mark.timeout(300)
def test_an_idle_worker_says_once_that_the_store_is_away_and_comes_back(
    restartable, trust, opened, environment, tmp_path
):
    url = restartable.server.url("q")
    trust(url)
    worker = subprocess.Popen(
        [sys.executable, "-m", "dfq", "worker", url, "--exec", "cat", "--max-tasks", "1"],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    with worker:
        try:
            lines = Lines(worker)
            lines.wait_for("works on")
            restartable.stop()
            lines.wait_for("fails, trying on")
            restartable.start()
            opened(url).push(1, id="t")
            assert lines.end() == 0, lines.text()
        finally:
            worker.kill()
    said = lines.text()
    assert said.count("fails, trying on") == 1
    assert "check the network, the endpoint and that the store is running" in said
    assert "is back" in said
    assert "Traceback" not in said


def test_a_worker_gets_through_a_store_that_answers_too_late(
    running_server, opened, work, prefix, caplog
):
    plan = Plan(SeededChance(5), {"delayed": 0.15}, longest_delay_seconds=2.0)
    with faulty_proxy(running_server("ministack")) as proxy:
        queue = opened(proxy.url(prefix, timeout=0.7), policy=POLICY)
        tasks = [queue.new_task(number, id=f"task-{number}") for number in range(40)]
        queue.push_many(tasks)
        proxy.plan = plan
        ran: list[int] = []
        assert work(queue, ran.append, drain=True, concurrency=4).ended() == 0
        proxy.plan = None
        assert proxy.counts["delayed"]
        assert sorted(ran) == list(range(40))
        stats = queue.stats()
    assert (stats.completed, stats.pending, stats.failed) == (40, 0, 0)
    assert "Traceback" not in caplog.text


def test_a_push_that_was_told_to_have_failed_can_be_repeated(running_server, run, prefix):
    """A program that gets no answer pushes again, under the same ids: each is there once."""
    rows = "".join(json.dumps({"id": f"task-{number}"}) + "\n" for number in range(100))
    push = ("push", "-", "--id-field", "id")
    with faulty_proxy(running_server("ministack")) as proxy:
        url = proxy.url(prefix)
        assert run("push", url, "1", "--id", "first").returncode == 0
        codes = []
        # So bad that it can't go well, and then a little worse than usual.
        for number, share in enumerate((0.4, *[0.05] * 20)):
            # Each try has a row of fates of its own, or one bad row would befall them all.
            proxy.plan = Plan(SeededChance(number), {"lost_answer": share})
            pushed = run(*push, stdin=rows, DFQ_QUEUE_URL=url)
            codes.append(pushed.returncode)
            assert "Traceback" not in pushed.stderr
            if codes[-1] == 0:
                break
        proxy.plan = None
        assert (codes[0], codes[-1], set(codes) - {0, 74, 75}) == (74, 0, set())
        assert json.loads(run("stats", url, "--json").stdout)["ready"] == 101
