"""The engines under test. A new engine is one more class here, not one more test file."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dfq import Lease, Policy, Queue
from dfq.store import Store
from dfq.testing import FakeClock, SeededChance
from tests.chosen import chosen
from tests.servers.timed_store import TimedStore


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


class StoreEngine:
    """The s3 engine over a store; a second handle is what another machine would have.

    The store's clock is the test's, as no server would let a test have its own.
    """

    has_url = False

    def __init__(self, store: Store, clock: FakeClock) -> None:
        self.clock = clock
        self._store = TimedStore(store, clock)

    def handle(self, policy: Policy | None) -> Queue:
        from dfq.engines.s3.queue import S3Queue

        return S3Queue(
            self._store, policy=policy, clock=self.clock, attention_seconds=0.0, certified=True
        )


ENGINES = {"memory": MemoryEngine, "file": FileEngine}
#: The s3 engine, by the store below it.
STORES = ("memory", "local", "ministack", "seaweedfs", "moto")
#: The same in a store that can't delete on a condition.
PLAIN_DELETE = "memory, plain delete"


class Engine:
    """One fresh queue, and further handles on it."""

    def __init__(self, name: str, folder: Path, make_store: Callable[[str], Store]) -> None:
        self.name = name
        self.clock = FakeClock()
        folder.mkdir()
        self._engine = self._make(name, folder, make_store)
        self._policy: Policy | None = None
        self._handles: list[Queue] = []

    def _make(self, name: str, folder: Path, make_store: Callable[[str], Store]) -> object:
        if name in ENGINES:
            return ENGINES[name](folder, self.clock)
        kind = name.removeprefix("s3 on ")
        store = make_store("memory" if kind == PLAIN_DELETE else kind)
        if kind == PLAIN_DELETE:
            store.conditional_delete = False
        return StoreEngine(store, self.clock)

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

    def open_by_url(self, url: str) -> Queue:
        """The queue as anybody opens it who knows its URL."""
        import dfq

        if not getattr(self._engine, "has_url", True):
            return self.reopen()
        return dfq.open(url)

    def close(self) -> None:
        for queue in self._handles:
            queue.close()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "make_engine" in metafunc.fixturenames:
        names = [*ENGINES, *(f"s3 on {store}" for store in (*STORES, PLAIN_DELETE))]
        if metafunc.definition.get_closest_marker("races"):
            # It checks, then acts: what goes wrong there says nothing about us.
            names.remove("s3 on moto")
        metafunc.parametrize("make_engine", chosen(names), indirect=True)


@pytest.fixture
def make_engine(
    request: pytest.FixtureRequest, tmp_path: Path, make_store: Callable[[str], Store]
) -> Iterator[Callable[[], Engine]]:
    """Make fresh queues on the engine under test."""
    made: list[Engine] = []

    def make() -> Engine:
        made.append(Engine(request.param, tmp_path / str(len(made)), make_store))
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
