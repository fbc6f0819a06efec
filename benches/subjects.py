"""What is timed. Every sample starts from a fresh directory, filled and written out before."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from benches import bare
from benches.filesystems import Ground
from benches.payloads import payload, payloads
from benches.peers import Peer, fill_dfq_many
from benches.processes import Crew, Drained

Key = TypeVar("Key")


def interleaved(subjects: Mapping[Key, Callable[[], float]], rounds: int) -> dict[Key, float]:
    """The median of each, measured in turns: a slow minute of the machine hits them all."""
    samples: dict[Key, list[float]] = {name: [] for name in subjects}
    for _ in range(rounds):
        for name, sample in subjects.items():
            samples[name].append(sample())
    return {name: statistics.median(values) for name, values in samples.items()}


@dataclass(frozen=True)
class Race:
    """One peer's fill and drain."""

    fill_seconds: float
    drained: Drained


def race(ground: Ground, peer: Peer, processes: int, count: int) -> Race:
    """Fill a fresh queue and empty it with so many processes."""
    tasks = payloads(count)
    with ground.directory() as path:
        started = time.monotonic()
        peer.fill(path, tasks)
        filled = time.monotonic() - started
        ground.settle()
        return Race(filled, Crew(peer.open_drain, path, processes).run(count))


def drain_seconds(ground: Ground, peer: Peer, processes: int, count: int) -> float:
    """Emptying a queue, all of it exactly once or it does not count."""
    drained = race(ground, peer, processes, count).drained
    if drained.lost or drained.twice or drained.failed:
        raise AssertionError(f"{peer.name} with {processes} processes: {drained}")
    return drained.seconds


def drain_dfq_seconds(ground: Ground, peer: Peer, processes: int, count: int) -> float:
    """The same for dfq, filled by push_many: nobody waits for ten thousand fsyncs."""
    with ground.directory() as path:
        fill_dfq_many(path, payloads(count))
        ground.settle()
        drained = Crew(peer.open_drain, path, processes).run(count)
    if drained.lost or drained.twice or drained.failed:
        raise AssertionError(f"{peer.name} with {processes} processes: {drained}")
    return drained.seconds


def drain_bare_seconds(ground: Ground, count: int) -> float:
    """The bare loop on a queue that dfq filled: the very same files."""
    with ground.directory() as path:
        fill_dfq_many(path, payloads(count))
        ground.settle()
        return bare.run("drain", path, bare.cores())


def fill_deep(path: Path, count: int) -> None:
    """Many tasks, pushed in lots that keep this process small."""
    import dfq

    lot = 10_000
    with dfq.open(path) as queue:
        for start in range(0, count, lot):
            end = min(start + lot, count)
            queue.push_many([queue.new_task(payload(number)) for number in range(start, end)])
