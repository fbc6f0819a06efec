"""The engines under test. A new engine is one more class here, not one more test file."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dfq import Lease, Policy, Queue
from dfq.testing import FakeClock, SeededChance


class MemoryEngine:
    """memory://name: a second handle is the same name."""

    _names = itertools.count()

    def __init__(self, folder: Path, clock: FakeClock) -> None:
        self.clock = clock
        self._name = f"conformance-{next(self._names)}"

    def handle(self, policy: Policy | None) -> Queue:
        from dfq.engines.memory import MemoryQueue

        return MemoryQueue(self._name, policy=policy, clock=self.clock, chance=SeededChance(7))


class FileEngine:
    """A folder: a second handle is what another process would have."""

    def __init__(self, folder: Path, clock: FakeClock) -> None:
        self.clock = clock
        self._folder = folder / "queue"

    def handle(self, policy: Policy | None) -> Queue:
        from dfq.engines.file import FileQueue

        return FileQueue(self._folder, policy=policy, clock=self.clock)


ENGINES = {"memory": MemoryEngine, "file": FileEngine}


class Engine:
    """One fresh queue, and further handles on it."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.clock = FakeClock()
        folder.mkdir()
        self._engine = ENGINES[name](folder, self.clock)
        self._policy: Policy | None = None
        self._handles: list[Queue] = []

    def open_queue(self, **policy: object) -> Queue:
        """The queue, made with these settings."""
        if "lease_seconds" in policy:
            policy.setdefault("heartbeat_seconds", policy["lease_seconds"] / 3)
        self._policy = Policy(**policy)
        return self.reopen()

    def reopen(self) -> Queue:
        """Another handle on the same queue."""
        queue = self._engine.handle(self._policy)
        self._handles.append(queue)
        return queue

    def close(self) -> None:
        for queue in self._handles:
            queue.close()


@pytest.fixture(params=ENGINES)
def make_engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Engine]]:
    """Make fresh queues on the engine under test."""
    made: list[Engine] = []

    def make() -> Engine:
        made.append(Engine(request.param, tmp_path / str(len(made))))
        return made[-1]

    yield make
    for engine in made:
        engine.close()


@pytest.fixture
def engine(make_engine: Callable[[], Engine]) -> Engine:
    return make_engine()


@pytest.fixture
def queue(engine: Engine) -> Queue:
    """A queue with the default policy."""
    return engine.open_queue()


@pytest.fixture
def clock(engine: Engine) -> FakeClock:
    return engine.clock


@pytest.fixture
def settle() -> Callable[[str, Queue, Lease], object]:
    """Use a lease by the name of the verb."""
    verbs: dict[str, Callable[[Queue, Lease], object]] = {
        "ack": lambda queue, lease: queue.ack(lease, "late"),
        "nack": lambda queue, lease: queue.nack(lease, "late", delay=0),
        "release": lambda queue, lease: queue.release(lease),
        "bury": lambda queue, lease: queue.bury(lease, "late"),
        "heartbeat": lambda queue, lease: queue.heartbeat(lease),
        "save_state": lambda queue, lease: queue.save_state(lease, "late"),
    }
    return lambda verb, queue, lease: verbs[verb](queue, lease)
