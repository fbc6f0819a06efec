"""What is timed and counted: each prepares, and returns the part that counts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import dfq
from benches.payloads import payloads
from benches.peers import SEED, fill_dfq_many, open_dfq

Work = Callable[[], None]


def push_one_by_one(path: str, tasks: int) -> Work:
    """Every push durable for itself."""
    queue = dfq.open(path)
    queue.claim()

    def work() -> None:
        for task in payloads(tasks):
            queue.push(task)

    return work


def push_many(path: str, tasks: int) -> Work:
    """All of them in one lot."""
    queue = dfq.open(path)
    queue.claim()
    made = [queue.new_task(task) for task in payloads(tasks)]
    return lambda: _discard(queue.push_many(made))


def claim_and_ack(path: str, tasks: int) -> Work:
    """Through the extension: claim, read, ack, until there is none."""
    fill_dfq_many(Path(path), payloads(tasks))
    return partial(_drain, open_dfq, path, tasks)


def claim_and_ack_seed(path: str, tasks: int) -> Work:
    """The same by the first design in plain Python."""
    SEED.fill(Path(path), payloads(tasks))
    return partial(_drain, SEED.open_drain, path, tasks)


def _drain(opener: object, path: str, tasks: int) -> None:
    numbers = list(opener(Path(path), "worker")())  # type: ignore[operator]
    if sorted(numbers) != list(range(tasks)):
        raise AssertionError(f"{len(numbers)} of {tasks} tasks came out, or one came twice")


def _discard(_: object) -> None:
    """A subject returns nothing."""
