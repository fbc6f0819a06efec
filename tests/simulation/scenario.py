"""One seed: a small queue, a few workers, bad weather; then peace, and all must come to its end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dfq.engines.s3 import beats, rescuing, settling, view
from dfq.policy import Policy, RetryPolicy
from tests.simulation.invariants import Invariants, WatchedStore
from tests.simulation.network import Network, Weather
from tests.simulation.truth import Violation
from tests.simulation.workers import Crowd, Worker
from tests.simulation.world import FiberThreading, TrueClock, World

#: When all is quiet, so many rounds of sweeping and claiming must do.
ROUNDS = 6
_A_DAY = 86_400.0


@contextmanager
def fiber_locks() -> Iterator[FiberThreading]:
    """The locks that are held during a request are those of fibers."""
    modules = (beats, rescuing, settling, view)
    threading = FiberThreading()
    before = [vars(module)["threading"] for module in modules]
    for module in modules:
        vars(module)["threading"] = threading
    try:
        yield threading
    finally:
        for module, real in zip(modules, before, strict=True):
            vars(module)["threading"] = real


class Scenario:
    """Everything of one seed."""

    def __init__(self, seed: int, *, traced: bool = False) -> None:
        self.world = world = World(seed, traced=traced)
        draw = world.random
        lease_seconds = draw.choice((6.0, 12.0, 30.0))
        self.policy = Policy(
            lease_seconds=lease_seconds,
            heartbeat_seconds=lease_seconds / 3,
            max_attempts=draw.choice((1, 2, 3)),
            retry=RetryPolicy(base_seconds=1.0, cap_seconds=10.0),
        )
        self.store = WatchedStore(clock=TrueClock(world), conditional_delete=draw.random() < 0.7)
        self.network = Network(world, self.store, Weather())
        self.invariants = Invariants(world, self.policy.max_attempts)
        self.invariants.cause = lambda: self.network.cause
        self.store.changed = self.invariants.changed
        self.crowd = Crowd(world, self.network, self.invariants, self.policy)

    def run(self) -> None:
        """Live through it; raises Violation."""
        world, draw = self.world, self.world.random
        world.say(f"{self.policy} conditional_delete={self.store.conditional_delete}")
        first = self.crowd.hire()
        pushes = draw.choice((1, 2, 3, 4))
        world.spawn(first, lambda: [first.do_push() for _ in range(pushes)] and None)
        world.run()
        self.network.weather = Weather.drawn(world)
        world.say(f"{self.network.weather}")
        until = world.time + draw.choice((60.0, 150.0, 400.0))
        for _ in range(self.crowd.size):
            self._start(until)
        if draw.random() < 0.5:
            # One that comes while others are in the middle of something.
            world.later(draw.uniform(10, 60), lambda: self._start(until))
        world.later(until - world.time, self._end)
        world.run()
        self._peace()

    def _start(self, until: float) -> None:
        worker = self.crowd.hire()
        # In a crowd all reach for the same tasks at the same moment.
        late = 0.0 if self.crowd.is_large else self.world.random.uniform(0, 2)
        self.world.spawn(worker, lambda: worker.live(until), late)
        if self.world.random.random() < 0.4:
            self.world.spawn(worker, lambda: worker.beat(until))

    def _end(self) -> None:
        """The power goes; only what is on its way still arrives."""
        self.world.say("everybody stops")
        for worker in self.crowd.workers:
            worker.dead = True
        self.network.clear_up()

    def _peace(self) -> None:
        self.crowd.attention_seconds = 0.0
        last = self.crowd.hire()
        self.world.spawn(last, lambda: self._tidy_up(last))
        self.world.run()
        if last.dead:
            raise Violation("the last worker died")

    def _tidy_up(self, last: Worker) -> None:
        world = self.world
        for _ in range(ROUNDS):
            world.wait(self.policy.lease_seconds + 20.0)
            last.do_sweep()
            while True:
                last.do_claim()
                if not last.held:
                    break
                for lease in list(last.held.values()):
                    last.settle("ack", lease)
        for seconds in (1000.0, _A_DAY, 1000.0):
            world.wait(seconds)
            last.do_sweep()
        self.invariants.check_end(self.store.keys())
        self._check_told(last)

    def _check_told(self, last: Worker) -> None:
        """What the queue says of itself is what is there."""
        counted = {"completed": 0, "failed": 0}
        for task in self.invariants.tasks.values():
            if not task.pushed or task.purged:
                continue
            state = "failed" if task.failed else "completed"
            counted[state] += 1
            record = last.queue.get(task.task_id)
            if record is None or record.state != state:
                told = None if record is None else record.state
                raise Violation(f"invariant 9: task {task.task_id} is {state}, get says {told}")


def run(seed: int) -> str | None:
    """Run a seed; what went wrong, or None."""
    with fiber_locks() as locks:
        scenario = Scenario(seed)
        locks.world = scenario.world
        try:
            scenario.run()
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return None


def trace(seed: int) -> tuple[list[str], Exception | None]:
    """Run a seed once more, and tell all that happens."""
    with fiber_locks() as locks:
        scenario = Scenario(seed, traced=True)
        locks.world = scenario.world
        caught: Exception | None = None
        try:
            scenario.run()
        except Exception as error:
            caught = error
        assert scenario.world.trace is not None
        return scenario.world.trace, caught
