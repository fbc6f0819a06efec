"""Workers that do whatever a worker may do, in an order that only chance knows."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from greenlet import getcurrent

from dfq.engines.s3.queue import S3Queue
from dfq.errors import (
    DuplicateTask,
    LeaseLost,
    QueueBusy,
    QueueUnavailable,
    TaskNotFound,
    WrongState,
)
from dfq.lease import Lease
from dfq.policy import Policy
from dfq.record import Pushed
from tests.simulation.invariants import Invariants
from tests.simulation.network import Connection, Network
from tests.simulation.world import Process, RandomChance, SkewedClock, World

#: Verbs by id and for all, and how often each is chosen.
_OTHERS = {
    "claim": 30,
    "push": 4,
    "sweep": 4,
    "cancel": 2,
    "bury_id": 1,
    "requeue": 5,
    "look": 3,
    "stale": 4,
    "rest": 6,
}
_ON_LEASE = {
    "ack": 30,
    "nack": 16,
    "release": 8,
    "bury": 4,
    "heartbeat": 18,
    "save_state": 8,
    "abandon": 3,
    "hand_over": 4,
    "rest": 12,
}


class Crowd:
    """What all workers of a run share."""

    def __init__(
        self, world: World, network: Network, invariants: Invariants, policy: Policy
    ) -> None:
        self.world = world
        self.network = network
        self.invariants = invariants
        self.policy = policy
        draw = world.random
        self.attention_seconds = draw.choice((0.0, 0.0, 20.0, 60.0))
        self.purges = draw.random() < 0.05
        #: Many workers that hardly rest over few tasks: they lose races, and each other's leases.
        self.is_large = draw.random() < 0.15
        self.size = draw.choice((6, 8, 12) if self.is_large else (1, 2, 3, 4))
        self.gap_seconds = draw.choice((0.05, 0.5) if self.is_large else (0.5, 3.0, 10.0))
        self.ids: list[str] = []
        self.workers: list[Worker] = []
        self._numbers = itertools.count(1)

    def hire(self) -> Worker:
        """One more worker, with a fresh handle on a machine of its own."""
        worker = Worker(self, next(self._numbers))
        self.workers.append(worker)
        self.invariants.handles.append(worker)
        return worker


class Worker(Process):
    """A process with one handle on the queue."""

    def __init__(self, crowd: Crowd, number: int) -> None:
        super().__init__(f"worker-{number}")
        self.crowd = crowd
        self.world = crowd.world
        self.clock = SkewedClock(self.world)
        self.queue = S3Queue(
            Connection(crowd.network, self, self.clock),
            policy=crowd.policy,
            clock=self.clock,
            chance=RandomChance(self.world.seed * 1000 + number),
            attention_seconds=crowd.attention_seconds,
            parallel=1,
            certified=True,
            pause=self.world.wait,
        )
        self.held: dict[str, Lease] = {}
        self.ended: list[Lease] = []

    def certain_until(self, lease_id: str) -> float | None:
        """Until when this process is certain of a lease, by its own clock."""
        held = self.queue._beats.get(lease_id)
        return None if held is None else held.certain_until

    # Life

    def live(self, until: float) -> None:
        """One thing after the other."""
        while self.world.time < until:
            self.act()
            self.world.wait(self.world.random.expovariate(1 / self.crowd.gap_seconds))

    def beat(self, until: float) -> None:
        """Beside all else, renew what is held, as a worker's own thread does."""
        while self.world.time < until:
            self.world.wait(self.crowd.policy.heartbeat_seconds * self.world.random.random() * 2)
            leases = list(self.held.values())
            if leases:
                self.heartbeat(leases)

    def act(self) -> None:
        """Do something."""
        draw = self.world.random
        if self.held and draw.random() < 0.7:
            lease = draw.choice(list(self.held.values()))
            self._act_on(lease, draw.choices(*_weights(_ON_LEASE))[0])
            return
        name = draw.choices(*_weights(_OTHERS))[0]
        if name == "sweep" and self.crowd.purges and draw.random() < 0.5:
            name = "purge"
        getattr(self, f"do_{name}")()

    def _act_on(self, lease: Lease, name: str) -> None:
        if name == "abandon":
            del self.held[lease.lease_id]
            self.ended.append(lease)
        elif name == "hand_over":
            # The same lease in another process: by its value alone.
            del self.held[lease.lease_id]
            other = self.world.random.choice(self.crowd.workers)
            if not other.dead:
                other.held[lease.lease_id] = lease
        elif name == "heartbeat":
            self.heartbeat([lease])
        elif name == "rest":
            self.do_rest()
        else:
            self.settle(name, lease)

    # Verbs under a lease

    def settle(self, name: str, lease: Lease) -> None:
        """Use a lease. Whoever gets no answer asks again, or not."""
        queue, draw = self.queue, self.world.random
        delay = draw.choice((0.0, 0.0, 2.0, 15.0))
        verbs: dict[str, Callable[[], Any]] = {
            "ack": lambda: queue.ack(lease, lease.fence),
            "nack": lambda: queue.nack(lease, "it went wrong", delay=delay),
            "release": lambda: queue.release(lease, delay=delay),
            "bury": lambda: queue.bury(lease, "hopeless"),
            "save_state": lambda: queue.save_state(lease, lease.fence),
        }
        keeps = name == "save_state"
        for _ in range(draw.choice((1, 3, 6))):
            started = self.crowd.invariants.begin()
            done, _ = self.call(f"{name} {_short(lease)}", verbs[name])
            if done == "well":
                self.crowd.invariants.obeyed(name, lease, started)
            if done == "refused" or (done == "well" and not keeps):
                self._end(lease)
            if done != "unknown" or self.dead:
                return
            self.world.wait(draw.uniform(0.1, 5.0))

    def _end(self, lease: Lease) -> None:
        self.held.pop(lease.lease_id, None)
        self.ended.append(lease)

    def heartbeat(self, leases: list[Lease]) -> None:
        """Renew leases with one call."""
        seconds = self.world.random.choice((None, None, 8.0, 25.0))
        started = self.crowd.invariants.begin()
        what = f"heartbeat {' '.join(map(_short, leases))}"
        done, answers = self.call(
            what, lambda: self.queue.heartbeat_many(leases, lease_seconds=seconds)
        )
        if done != "well":
            return
        for lease, answer in zip(leases, answers, strict=True):
            if isinstance(answer, Lease):
                self.crowd.invariants.obeyed("heartbeat", lease, started)
            elif isinstance(answer, LeaseLost):
                self._end(lease)

    def do_stale(self) -> None:
        """Use a lease that has ended."""
        if self.ended:
            lease = self.world.random.choice(self.ended)
            verb = self.world.random.choice(("ack", "nack", "release", "save_state", "heartbeat"))
            if verb == "heartbeat":
                self.heartbeat([lease])
            else:
                self.settle(verb, lease)

    # The other verbs

    def do_claim(self) -> None:
        limit = self.world.random.choice((1, 1, 3))
        done, leases = self.call(
            "claim", lambda: self.queue.claim_many(limit, self.name) or self._none()
        )
        if done == "well":
            self.world.say(f"  has {' '.join(map(_short, leases)) or 'nothing'}")
            self.crowd.invariants.handed_out(leases)
            self.held |= {lease.lease_id: lease for lease in leases}

    def _none(self) -> list[Lease]:
        return []

    def do_push(self) -> None:
        if self.world.random.random() < 0.2:
            self._push_many()
            return
        task_id = self._id_to_push()
        done, _ = self.call(
            f"push {task_id}", lambda: self.queue.push(1, id=task_id, **self._options())
        )
        if done == "well":
            self.crowd.invariants.pushed([task_id])

    def _push_many(self) -> None:
        wanted = [self._id_to_push() for _ in range(3)]

        def push_many() -> list[Pushed]:
            return self.queue.push_many(
                self.queue.new_task(1, id=task_id, **self._options()) for task_id in wanted
            )

        done, told = self.call(f"push {' '.join(wanted)}", push_many)
        if done == "well":
            self.crowd.invariants.pushed(one.id for one in told if one.created)

    def _id_to_push(self) -> str:
        draw, known = self.world.random, self.crowd.ids
        task_id = draw.choice(known) if known and draw.random() < 0.3 else f"t{len(known)}"
        if task_id not in known:
            known.append(task_id)
        return task_id

    def _options(self) -> dict[str, Any]:
        draw = self.world.random
        return {
            "priority": draw.choice(("normal", "normal", "high")),
            "ttl": draw.choice((None, None, None, 45.0)),
        }

    def do_sweep(self) -> None:
        self.call("sweep", self.queue.sweep)

    def do_purge(self) -> None:
        state = self.world.random.choice((None, "completed", "failed", "ready", "leased"))
        self.call(f"purge {state}", lambda: self.queue.purge(state))

    def do_cancel(self) -> None:
        self._by_id("cancel", self.queue.cancel)

    def do_bury_id(self) -> None:
        self._by_id("bury", self.queue.bury)

    def do_requeue(self) -> None:
        self._by_id("requeue", self.queue.requeue)

    def do_look(self) -> None:
        self._by_id("get", self.queue.get)

    def do_rest(self) -> None:
        """Work for a while, or sleep: perhaps beyond a lease, perhaps beyond a record's youth."""
        draw = self.world.random
        self.world.wait(draw.uniform(0, draw.choice((2, 10, 30, 30, 150))))

    def _by_id(self, name: str, verb: Callable[[str], Any]) -> None:
        if self.crowd.ids:
            task_id = self.world.random.choice(self.crowd.ids)
            self.call(f"{name} {task_id}", lambda: verb(task_id))

    def call(self, what: str, verb: Callable[[], Any]) -> tuple[str, Any]:
        """Call a verb; how it went, and its answer. Any other error than these is a bug."""
        self.world.say(what)
        fiber: Any = getcurrent()
        fiber.verb = what
        try:
            answer = verb()
        except LeaseLost as error:
            self.world.say(f"  {type(error).__name__}: {error}")
            return "refused", error
        except (DuplicateTask, TaskNotFound, WrongState) as error:
            self.world.say(f"  {type(error).__name__}: {error}")
            return "refused", error
        except (QueueUnavailable, QueueBusy) as error:
            self.world.say(f"  {type(error).__name__}: {error}")
            return "unknown", error
        self.world.say(f"  {what.split()[0]} is done")
        return "well", answer


def _weights(table: dict[str, int]) -> tuple[list[str], list[int]]:
    return list(table), list(table.values())


def _short(lease: Lease) -> str:
    return f"{lease.task_id}/{lease.fence}/{lease.lease_id[-6:]}"
