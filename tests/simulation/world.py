"""A world of its own: time, chance and turns, all drawn from one seed.

Everybody who acts is a fiber. A fiber runs until it waits, then the one whose time comes next goes
on; nothing happens at the same time, and time passes only while all wait. So a seed is a run.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable
from typing import Any

from greenlet import getcurrent, greenlet

#: What the store's clock shows when a world begins: not a whole second, as no clock does.
BEGINNING = 1_700_000_000.25
#: A run that takes more turns than this goes round in circles.
MAX_TURNS = 200_000


class Died(BaseException):
    """The process of a fiber was killed. No code of the engine may see to anything then."""


class Fiber(greenlet):
    """Something that acts, on behalf of a process that may die."""

    process: Process


class Process:
    """What dies at once, with all its fibers."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.dead = False


class World:
    """Time, chance, and whose turn it is."""

    def __init__(self, seed: int, *, traced: bool = False) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.time = 0.0
        self.trace: list[str] | None = [] if traced else None
        self._turns: list[tuple[float, int, Callable[[], Any]]] = []
        self._order = itertools.count()
        self._hub = getcurrent()

    def say(self, what: str) -> None:
        """Note something for whoever reads the run later."""
        if self.trace is not None:
            process = getattr(getcurrent(), "process", None)
            name = "network" if process is None else process.name
            self.trace.append(f"{self.time:10.3f}  {name:<9} {what}")

    def later(self, seconds: float, call: Callable[[], Any]) -> None:
        """Have something called when so much time has passed."""
        heapq.heappush(self._turns, (self.time + seconds, next(self._order), call))

    def spawn(self, process: Process, life: Callable[[], None], seconds: float = 0.0) -> None:
        """Let a process do something beside all else."""

        def live() -> None:
            try:
                if not process.dead:
                    life()
            except Died:
                self.say("is dead")

        fiber = Fiber(live, self._hub)
        fiber.process = process
        self.later(seconds, fiber.switch)

    def wait(self, seconds: float) -> None:
        """Let time pass for the fiber that says so."""
        fiber = getcurrent()
        self.later(seconds, fiber.switch)
        self._give_way(fiber)

    def _give_way(self, fiber: Any) -> None:
        self._hub.switch()
        if fiber.process.dead:
            raise Died

    def run(self) -> None:
        """Until nobody waits for anything."""
        for _ in range(MAX_TURNS):
            if not self._turns:
                return
            self.time, _, call = heapq.heappop(self._turns)
            call()
        raise AssertionError(f"not at an end after {MAX_TURNS:,} turns")


class FiberLock:
    """A lock between fibers, in place of those between threads. May be taken twice by its owner."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._owner: object = None
        self._depth = 0
        self._waiting: deque[Any] = deque()

    def __enter__(self) -> FiberLock:
        me = getcurrent()
        while self._owner is not None and self._owner is not me:
            self._waiting.append(me)
            self._world._give_way(me)
        self._owner = me
        self._depth += 1
        return self

    def __exit__(self, *exc: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._owner = None
            waiting, self._waiting = self._waiting, deque()
            for fiber in waiting:
                self._world.later(0.0, fiber.switch)


class FiberThreading:
    """What the engine takes from ``threading``, for the fibers of one world at a time."""

    world: World

    def Lock(self) -> FiberLock:
        return FiberLock(self.world)

    RLock = Lock


class SkewedClock:
    """A machine's clocks: the time of day is off, the running of time is right."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._wall = BEGINNING + world.random.uniform(-86_400, 86_400)
        self._boot = world.random.uniform(0, 1e6)

    def wall(self) -> float:
        return self._wall + self._world.time

    def boot(self) -> float:
        return self._boot + self._world.time

    def true_time(self, boot: float) -> float:
        """When our clock shows this, by the time of the world."""
        return boot - self._boot


class TrueClock:
    """The store's own clock."""

    def __init__(self, world: World) -> None:
        self._world = world

    def wall(self) -> float:
        return BEGINNING + self._world.time

    def boot(self) -> float:
        return self._world.time


class RandomChance:
    """The world's chance, as the engine wants it."""

    def __init__(self, seed: int) -> None:
        drawn = random.Random(seed)
        self.uniform = drawn.uniform
        self.bits = drawn.getrandbits
