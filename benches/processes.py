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
    barrier.wait(_PATIENCE_SECONDS)
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


def drain(opener: Opener, path: Path, processes: int, expected: int) -> Drained:
    """Empty the queue at ``path``; every process has opened it before the clock starts."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(processes)
    workers, reports = [], []
    for index in range(processes):
        receive, send = context.Pipe(duplex=False)
        worker = context.Process(
            target=_worker, args=(opener, path, f"worker-{index}", barrier, send)
        )
        worker.start()
        send.close()
        workers.append(worker)
        reports.append(receive)
    results = []
    for worker, receive in zip(workers, reports, strict=True):
        if not receive.poll(_PATIENCE_SECONDS):
            raise TimeoutError(f"a worker of {opener!r} has not ended in {_PATIENCE_SECONDS:g} s")
        results.append(receive.recv())
        worker.join(30)
    times = Counter(number for _, _, numbers, _ in results for number in numbers)
    return Drained(
        seconds=max(r[1] for r in results) - min(r[0] for r in results),
        done=sum(times.values()),
        lost=expected - len(times),
        twice=sum(1 for count in times.values() if count > 1),
        failed="; ".join(sorted({r[3] for r in results if r[3]})),
    )
