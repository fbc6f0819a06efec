"""Four processes push, four others claim at the same time, from one folder."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from dfq.engines.file import FileQueue

pytestmark = [pytest.mark.crash, pytest.mark.timeout(180)]

PROCESSES = 4
EACH = 10_000
TASKS = PROCESSES * EACH


def test_four_times_ten_thousand_tasks_are_each_completed_once_by_four_processes(
    folder: Path, child: Callable[..., list[str]]
) -> None:
    root = folder / "queue"
    claimers = [
        subprocess.Popen(
            child("complete_tasks.py", root, folder / f"acked-{number}"),
            stdin=subprocess.PIPE,
        )
        for number in range(PROCESSES)
    ]
    pushers = [
        subprocess.Popen(child("push_tasks.py", root, f"p{number}", EACH))
        for number in range(PROCESSES)
    ]
    assert [pusher.wait(timeout=120) for pusher in pushers] == [0] * PROCESSES
    for claimer in claimers:
        claimer.communicate(timeout=120)
    assert [claimer.returncode for claimer in claimers] == [0] * PROCESSES

    logs = [path.read_text().splitlines() for path in folder.glob("acked-*")]
    lines = [line.split() for log in logs for line in log]
    acks = Counter(task_id for task_id, _ in lines)
    expected = {f"p{n}-{m}" for n in range(PROCESSES) for m in range(EACH)}
    assert set(acks) == expected
    assert set(acks.values()) == {1}, f"acked twice: {acks.most_common(5)}"

    queue = FileQueue(root)
    assert {record.task.id for record in queue.list("completed")} == expected
    stats = queue.stats()
    assert (stats.completed, stats.ready, stats.leased, stats.failed) == (TASKS, 0, 0, 0)
    for task_id, fence in lines[:: TASKS // 100]:
        record = queue.get(task_id)
        assert record is not None and record.result == int(fence)
    assert not list(root.glob("tmp/*"))
    assert not list(root.glob("quarantine/*"))
