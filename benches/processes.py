"""Drain a queue with some processes at once, and count what came out."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path

#: Given a queue's directory and a worker's name, opens the queue and returns a function that
#: yields the numbers of the tasks it finished until there are none.
Opener = Callable[[Path, str], Callable[[], Iterator[int]]]

_PATIENCE_SECONDS = 600.0


@dataclass(frozen=True)
class Drained:
    """How long it took from the first start to the last end, and what was wrong."""

    seconds: float
    done: int
    lost: int
    twice: int
    failed: str = ""

    @property
    def per_second(self) -> float:
        """Tasks finished in a second."""
        return self.done / self.seconds if self.seconds else 0.0


def _worker(opener: Opener, path: Path, name: str, barrier: Barrier, report: Connection) -> None:
    numbers: list[int] = []
    error = ""
    drain = opener(path, name)
    barrier.wait(_PATIENCE_SECONDS)  # opened
    barrier.wait(_PATIENCE_SECONDS)  # go
    started = time.monotonic()
    try:
        numbers.extend(drain())
    except Exception as failure:  # a peer that breaks under load is a result, not an accident
        error = f"{type(failure).__name__}: {failure}"
    ended = time.monotonic()
    report.send((started, ended, numbers, error))
    report.close()
    # Peers' clean-up at exit (locks, threads) is not what is measured.
    os._exit(0)


class Crew:
    """Processes that have the queue open and wait for the word."""

    def __init__(self, opener: Opener, path: Path, processes: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._barrier = context.Barrier(processes + 1)
        self._workers, self._reports = [], []
        for index in range(processes):
            receive, send = context.Pipe(duplex=False)
            arguments = (opener, path, f"worker-{index}", self._barrier, send)
            worker = context.Process(target=_worker, args=arguments)
            worker.start()
            send.close()
            self._workers.append(worker)
            self._reports.append(receive)
        self._barrier.wait(_PATIENCE_SECONDS)

    def run(self, expected: int) -> Drained:
        """Let them empty the queue; ``expected`` is how many tasks are in it."""
        self._barrier.wait(_PATIENCE_SECONDS)
        results = []
        for worker, receive in zip(self._workers, self._reports, strict=True):
            if not receive.poll(_PATIENCE_SECONDS):
                raise TimeoutError(f"{worker.name} has not ended in {_PATIENCE_SECONDS:g} s")
            results.append(receive.recv())
            worker.join(_PATIENCE_SECONDS)
        times = Counter(number for _, _, numbers, _ in results for number in numbers)
        return Drained(
            seconds=max(r[1] for r in results) - min(r[0] for r in results),
            done=sum(times.values()),
            lost=expected - len(times),
            twice=sum(1 for count in times.values() if count > 1),
            failed="; ".join(sorted({r[3] for r in results if r[3]})),
        )
