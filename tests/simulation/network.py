"""The store as one process sees it: behind a network that has all of S3's bad days.

A request takes its time to get there, and its answer to come back; either may take longer than a
lease lives. It may come to nothing, or be carried out although nobody says so, or much later, or
twice. The store itself is the one in memory: it does what it is asked in one step.
"""

from __future__ import annotations

from builtins import list as List
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from greenlet import getcurrent

from dfq.errors import QueueUnavailable, StoreBusy, StoreUnsure
from dfq.store import MAX_PAGE, Lost, Object, Page, RequestCounter
from dfq.stores.memory import MemoryStore
from dfq.stores.server_clock import ServerClock
from tests.simulation.world import Died, Process, SkewedClock, World

#: So long a client waits for an answer that does not come.
PATIENCE_SECONDS = 3.0


@dataclass
class Weather:
    """How often what happens to a request, from 0 to 1."""

    late: float = 0.0
    lost: float = 0.0
    lost_answer: float = 0.0
    duplicated: float = 0.0
    conflict: float = 0.0
    slow_down: float = 0.0
    #: The process dies before the request is off, or right after.
    crash: float = 0.0
    #: The process stands still for about a lease, or for much longer.
    pause: float = 0.0
    long_pause: float = 0.0
    #: A page of a listing has no more entries than this.
    page: int = MAX_PAGE

    @classmethod
    def drawn(cls, world: World) -> Weather:
        """The weather of a whole run."""
        draw = world.random
        if draw.random() < 0.25:
            # A storm: requests come twice, the second much later, while processes stand still.
            lost_answer = draw.choice((0.05, 0.12))
            return cls(duplicated=0.3, lost_answer=lost_answer, pause=0.15)
        shares = draw.choice(((0.0,), (0.0, 0.02), (0.0, 0.05), (0.0, 0.0, 0.12), (0.08,)))
        faults = {name: draw.choice(shares) for name in _FAULTS}
        return cls(
            **faults,
            crash=draw.choice((0.0, 0.004, 0.02)),
            pause=draw.choice((0.0, 0.01, 0.05)),
            long_pause=draw.choice((0.0, 0.0, 0.01)),
            page=draw.choice((MAX_PAGE, MAX_PAGE, MAX_PAGE, 3)),
        )


_FAULTS = ("late", "lost", "lost_answer", "duplicated", "conflict", "slow_down")


class Network:
    """Between all processes and the one store."""

    def __init__(self, world: World, store: MemoryStore, weather: Weather) -> None:
        self.world = world
        self.store = store
        self.weather = weather
        #: Who is behind the change that is being made.
        self.cause = ""

    def clear_up(self) -> None:
        """From now on nothing goes wrong."""
        self.weather = Weather()

    def fault(self) -> str | None:
        """What happens to the next request."""
        weather = self.weather
        drawn = self.world.random.random()
        for name in (*_FAULTS, "crash"):
            drawn -= getattr(weather, name)
            if drawn < 0:
                return name
        return None

    def travel_seconds(self) -> float:
        """How long a request or an answer takes; or else, how long its process stands still."""
        draw = self.world.random
        drawn = draw.random()
        if drawn < self.weather.long_pause:
            return draw.uniform(40, 400)
        if drawn < self.weather.long_pause + self.weather.pause:
            return draw.uniform(1, 40)
        return draw.uniform(0.005, 0.1)

    def late_seconds(self) -> float:
        """How much later than all others a request arrives."""
        draw = self.world.random
        return draw.uniform(*draw.choice(((0, 2), (0, 20), (20, 70), (60, 200), (100, 1300))))

    def deliver(self, cause: str, carry_out: Callable[[], Any]) -> None:
        """Carry out a request whose answer nobody will read."""
        self.cause = cause
        try:
            carry_out()
        except Lost:
            self.world.say("… arrives late, in vain")
        else:
            self.world.say("… arrives late, and is carried out")


class Connection:
    """The store of one process."""

    def __init__(self, network: Network, process: Process, clock: SkewedClock) -> None:
        self.url = "memory://simulation"
        self.requests = RequestCounter()
        self.conditional_delete = network.store.conditional_delete
        self._network = network
        self._world = network.world
        self._process = process
        self._server_clock = ServerClock(clock)

    def create(self, key: str, body: bytes) -> str:
        return self._write(f"create {key}", lambda: self._store.create(key, body), True)

    def replace(self, key: str, body: bytes, etag: str) -> str:
        what = f"replace {key} ({etag[:6]})"
        return self._write(what, lambda: self._store.replace(key, body, etag), True)

    def put(self, key: str, body: bytes) -> str:
        return self._write(f"put {key}", lambda: self._store.put(key, body), False)

    def read(self, key: str) -> Object | None:
        return self._ask(f"read {key}", lambda: self._store.read(key))

    def list(self, prefix: str, after: str = "", limit: int = MAX_PAGE) -> Page:
        limit = min(limit, self._network.weather.page)
        return self._ask(
            f"list {prefix}* after {after}", lambda: self._store.list(prefix, after, limit)
        )

    def delete(self, key: str, etag: str | None = None) -> bool:
        what = f"delete {key} ({etag[:6] if etag else 'any'})"
        return self._write(what, lambda: self._store.delete(key, etag), etag is not None)

    def delete_many(self, keys: Iterable[str]) -> None:
        wanted = List(keys)
        if wanted:
            what = f"delete {' '.join(wanted)}"
            self._write(what, lambda: self._store.delete_many(wanted), False)

    def now(self) -> float:
        now = self._server_clock.now()
        while now is None:
            self._ask("ask the time", lambda: None)
            now = self._server_clock.now()
        return now

    def close(self) -> None:
        """Nothing is held."""

    @property
    def _store(self) -> MemoryStore:
        return self._network.store

    def _ask(self, what: str, carry_out: Callable[[], Any]) -> Any:
        return self._send(what, carry_out, QueueUnavailable)

    def _write(self, what: str, carry_out: Callable[[], Any], conditional: bool) -> Any:
        return self._send(what, carry_out, StoreUnsure, writes=True, conditional=conditional)

    def _send(
        self,
        what: str,
        carry_out: Callable[[], Any],
        unanswered: type[QueueUnavailable],
        *,
        writes: bool = False,
        conditional: bool = False,
    ) -> Any:
        network, world = self._network, self._world
        fault = network.fault()
        world.say(f"  {what}{f'  [{fault}]' if fault else ''}")
        cause = getattr(getcurrent(), "verb", "")
        if fault in ("late", "duplicated", "crash") and writes:
            copies = fault != "crash" or world.random.random() < 0.5
            if copies:
                late = network.late_seconds()
                world.later(late, lambda: network.deliver(f"{cause} late", carry_out))
        if fault == "crash":
            self._process.dead = True
            raise Died
        world.wait(network.travel_seconds())
        if fault == "slow_down" or (fault == "conflict" and conditional):
            raise StoreBusy(f"{what}: busy")
        if fault in ("late", "lost"):
            world.wait(PATIENCE_SECONDS)
            raise unanswered(f"{what}: no answer")
        return self._answer(what, cause, carry_out, fault, unanswered)

    def _answer(
        self,
        what: str,
        cause: str,
        carry_out: Callable[[], Any],
        fault: str | None,
        unanswered: type[QueueUnavailable],
    ) -> Any:
        network, world = self._network, self._world
        network.cause = cause
        date = self._store.now()
        lost: Lost | None = None
        answer = None
        try:
            answer = carry_out()
        except Lost as error:
            lost = error
        if fault == "lost_answer":
            world.say(f"  … {'refused' if lost else 'carried out'}, and the answer is lost")
            world.wait(PATIENCE_SECONDS)
            raise unanswered(f"{what}: no answer")
        if lost is not None:
            world.say(f"  … refused: {lost}")
        world.wait(network.travel_seconds())
        self._server_clock.saw(date)
        if lost is not None:
            raise lost
        return answer
