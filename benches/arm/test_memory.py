"""A worker has to leave room on a Pi with 1 GB, and still after months."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dfq
from benches.arm.calls import REPOSITORY
from benches.arm.memory import resident_kilobytes
from benches.filesystems import Ground
from benches.payloads import payloads

MAX_IDLE_KILOBYTES = 25_000
WARM = 5_000
TASKS = 10_000
#: No more wait at once than before: an index is as large as the queue was deep.
LOT = 500
#: As on a small Pi. Else glibc keeps a heap for each thread, which take long to fill up evenly.
SETTINGS = {"MALLOC_ARENA_MAX": "2"}
MAX_GROWTH = 0.02
_PATIENCE_SECONDS = 900

pytestmark = pytest.mark.timeout(1200)


class Worker:
    """`dfq worker` on a queue of its own."""

    def __init__(self, path: Path) -> None:
        self._queue = dfq.open(path)
        self._done = 0
        self._log = path.with_suffix(".log")
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    sys.executable, "-m", "dfq", "worker", str(path),
                    "--handler", "benches.arm.handler:work",
                ],
                cwd=REPOSITORY, stdout=log, stderr=log, env={**os.environ, **SETTINGS},
            )  # fmt: skip

    def work_off(self, count: int) -> None:
        """Give it so many tasks by and by, and wait until the last is done."""
        for start in range(0, count, LOT):
            self._work_off_lot(min(LOT, count - start))

    def _work_off_lot(self, count: int) -> None:
        self._queue.push_many([self._queue.new_task(task) for task in payloads(count)])
        self._done += count
        pause = threading.Event()
        for _ in range(_PATIENCE_SECONDS * 10):
            if self._queue.stats().completed == self._done:
                return
            assert self._process.poll() is None, self._log.read_text()[-2000:]
            pause.wait(0.1)
        raise AssertionError(f"not done after {_PATIENCE_SECONDS} s: {self._queue.stats()}")

    def weigh(self) -> tuple[int, int]:
        """Kilobytes of the worker and of the emulator below it."""
        return resident_kilobytes(self._process.pid)

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(60)
        finally:
            self._process.kill()
            self._queue.close()


@pytest.fixture
def worker(ground: Ground) -> Iterator[Worker]:
    with ground.directory() as path:
        made = Worker(path / "queue")
        yield made
        made.stop()


def test_an_idle_worker_is_small(benchmark: Any, worker: Worker) -> None:
    # It has seen one task: everything that a task needs is loaded.
    worker.work_off(1)
    resident, emulator = worker.weigh()
    benchmark.extra_info["resident kB"] = resident
    benchmark.extra_info["emulator kB"] = emulator
    benchmark.pedantic(worker.weigh, rounds=1)
    assert resident <= MAX_IDLE_KILOBYTES


def test_a_worker_does_not_grow(benchmark: Any, worker: Worker) -> None:
    worker.work_off(WARM)
    before, _ = worker.weigh()
    benchmark.pedantic(worker.work_off, args=(TASKS,), rounds=1)
    after, _ = worker.weigh()
    benchmark.extra_info["kB before"] = before
    benchmark.extra_info["kB after"] = after
    benchmark.extra_info["tasks"] = TASKS
    assert after <= before * (1 + MAX_GROWTH)
