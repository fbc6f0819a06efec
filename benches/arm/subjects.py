"""What is timed and counted: each prepares, and returns the part that counts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path

import dfq
from benches.payloads import payloads
from benches.peers import SEED, fill_dfq_many, fill_seed, open_dfq, open_seed_rescan

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


def some_of_many(path: str, tasks: int, of: int) -> Work:
    """Claim, read and ack a few of many, the first look at them included."""
    fill_dfq_many(Path(path), payloads(of))
    return partial(_take, open_dfq, path, tasks)


def some_of_many_rescanning(path: str, tasks: int, of: int) -> Work:
    """The same by the first design as its origin does it: listing all before every claim."""
    fill_seed(Path(path), payloads(of))
    return partial(_take, open_seed_rescan, path, tasks)


def _take(opener: object, path: str, tasks: int) -> None:
    numbers = list(islice(opener(Path(path), "worker")(), tasks))  # type: ignore[operator]
    if len(set(numbers)) != tasks:
        raise AssertionError(f"{len(set(numbers))} of {tasks} tasks came out")


def _drain(opener: object, path: str, tasks: int) -> None:
    numbers = list(opener(Path(path), "worker")())  # type: ignore[operator]
    if sorted(numbers) != list(range(tasks)):
        raise AssertionError(f"{len(numbers)} of {tasks} tasks came out, or one came twice")


def _discard(_: object) -> None:
    """A subject returns nothing."""
