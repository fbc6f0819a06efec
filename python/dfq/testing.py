"""For the tests of people who use dfq: time and chance in your hand, and work done at once.

>>> from dfq.testing import FakeClock, drain, memory_queue
>>> queue = memory_queue(clock=FakeClock())
>>> task = queue.push(2, id="two")
>>> drain(queue, lambda payload: payload * 21)
1
>>> queue.get("two").result
42
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from dfq.ambient import SYSTEM_CLOCK, Chance, Clock
from dfq.engines.memory import MemoryQueue
from dfq.errors import DfqError, HandlerError, InvalidTask, LeaseLost, Reject, RetryLater
from dfq.handler import Handler, call_arguments, takes_context
from dfq.lease import Lease
from dfq.payload import JSON
from dfq.policy import Policy
from dfq.queue import Queue
from dfq.record import EVERYTHING, Filter, Pushed
from dfq.task import NewTask, Task

__all__ = ["FakeClock", "InlineContext", "Runs", "SeededChance", "drain", "inline", "memory_queue"]

#: drain() gives up after so many deliveries: a task that pushes itself again has no end.
MAX_DELIVERIES = 100_000


class FakeClock:
    """A clock that stands still until told."""

    def __init__(self, wall: float = 1_700_000_000.0, boot: float = 1_000.0) -> None:
        self._wall = wall
        self._boot = boot

    def wall(self) -> float:
        """Seconds since 1970."""
        return self._wall

    def boot(self) -> float:
        """Seconds since boot."""
        return self._boot

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        if seconds < 0:
            raise ValueError(f"time passes forwards, not by {seconds}; use jump_wall")
        self._wall += seconds
        self._boot += seconds

    def jump_wall(self, seconds: float) -> None:
        """Set the time of day forwards or backwards; no time passes."""
        self._wall += seconds


class SeededChance:
    """Chance that repeats itself: the same seed gives the same run."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        # A counter is safe from threads, which a state that is read and written is not.
        self._draws = itertools.count(1)

    def uniform(self, low: float, high: float) -> float:
        """A number between low and high."""
        return low + (high - low) * self.bits(53) / 2**53

    def bits(self, count: int) -> int:
        """``count`` bits that look random."""
        value = 0
        for _ in range(0, count, 64):
            value = value << 64 | self._draw()
        return value & (1 << count) - 1

    def _draw(self) -> int:
        # splitmix64: every 64-bit number comes once before the first comes again.
        mask = 0xFFFF_FFFF_FFFF_FFFF
        mixed = (self._seed + next(self._draws) * 0x9E37_79B9_7F4A_7C15) & mask
        mixed = (mixed ^ mixed >> 30) * 0xBF58_476D_1CE4_E5B9 & mask
        mixed = (mixed ^ mixed >> 27) * 0x94D0_49BB_1331_11EB & mask
        return mixed ^ mixed >> 31


def memory_queue(
    *, clock: Clock = SYSTEM_CLOCK, chance: Chance | None = None, policy: Policy | None = None
) -> Queue:
    """A queue of your own, in memory, whose chance repeats itself."""
    return MemoryQueue(policy=policy, clock=clock, chance=chance or SeededChance())


def drain(queue: Queue, *handlers: Handler[..., Any] | Callable[..., Any]) -> int:
    """Run every task that is ready, here and now, as a worker would; how many deliveries.

    Decorated handlers take the tasks of their name, a plain function all the others. What a
    handler raises goes into the task's history; tasks that wait for a delay stay.
    """
    return Runs(queue, *handlers).run_ready()


@contextmanager
def inline(
    queue: Queue, *handlers: Handler[..., Any] | Callable[..., Any], raise_errors: bool = True
) -> Iterator[Runs]:
    """While this is open, every push to ``queue`` runs what is ready before it returns.

    >>> queue = memory_queue()
    >>> with inline(queue, len) as runs:
    ...     task = queue.push("four")
    >>> runs.results[task.id]
    4

    What a handler raises is recorded as a worker would, and then raised by the push, unless
    ``raise_errors`` is False.
    """
    runs = Runs(queue, *handlers)
    push, push_many = queue.push, queue.push_many

    def push_and_run(payload: JSON, **options: Any) -> Task:
        task = push(payload, **options)
        runs.run_ready(raise_errors=raise_errors)
        return task

    def push_many_and_run(tasks: Iterable[NewTask]) -> list[Pushed]:
        pushed = push_many(tasks)
        runs.run_ready(raise_errors=raise_errors)
        return pushed

    # On the object, so that handlers bound to this queue come here too.
    own = vars(queue)
    own["push"], own["push_many"] = push_and_run, push_many_and_run
    try:
        yield runs
    finally:
        del own["push"], own["push_many"]


class Runs:
    """Runs tasks in the calling thread and keeps what came of them."""

    def __init__(self, queue: Queue, *handlers: Handler[..., Any] | Callable[..., Any]) -> None:
        self._queue = queue
        self._named = {h.name: h for h in handlers if isinstance(h, Handler)}
        plain = [h for h in handlers if not isinstance(h, Handler)]
        if len(plain) > 1 or not handlers:
            raise HandlerError("give decorated handlers, and at most one plain function")
        self._default = plain[0] if plain else None
        self._filter = EVERYTHING if plain else Filter(names=tuple(self._named))
        #: What handlers returned, by task id.
        self.results: dict[str, JSON] = {}
        #: What handlers raised last, by task id.
        self.errors: dict[str, Exception] = {}

    def run_ready(self, *, raise_errors: bool = False) -> int:
        """Run until nothing is ready; how many deliveries that were."""
        for count in range(MAX_DELIVERIES):
            lease = self._queue.claim("inline", filter=self._filter)
            if lease is None:
                return count
            error = self._deliver(lease)
            if error is not None and raise_errors:
                raise error
        raise DfqError(
            f"still not done after {MAX_DELIVERIES:,} deliveries; does a task push itself again?"
        )

    def _deliver(self, lease: Lease) -> Exception | None:
        try:
            result = self._call(lease)
        except Exception as error:
            self.errors[lease.task_id] = error
            self._settle_failure(lease, error)
            return error
        except BaseException:
            self._queue.release(lease)
            raise
        self.results[lease.task_id] = result
        try:
            self._queue.ack(lease, result)
        except LeaseLost:
            pass  # the handler cancelled or deleted its own task
        except InvalidTask as error:
            self.errors[lease.task_id] = error
            self._queue.bury(lease, str(error))
            return error
        return None

    def _settle_failure(self, lease: Lease, error: Exception) -> None:
        try:
            if isinstance(error, RetryLater):
                # Without a delay it would be ready again at once, and so without end.
                self._queue.release(lease, delay=1.0 if error.delay is None else error.delay)
            elif isinstance(error, Reject):
                self._queue.bury(lease, str(error) or "rejected")
            else:
                self._queue.nack(lease, f"{type(error).__name__}: {error}")
        except LeaseLost:
            pass  # the handler cancelled or deleted its own task

    def _call(self, lease: Lease) -> JSON:
        context = InlineContext(self._queue, lease)
        handler = self._named.get(lease.task.name or "")
        if handler is not None:
            args, kwargs = call_arguments(lease.task.payload)
            leading = [context] if handler.takes_context else []
            return _finished(handler.function(*leading, *args, **kwargs))
        assert self._default is not None
        leading = [context] if takes_context(self._default) else []
        return _finished(self._default(*leading, lease.task.payload))


class InlineContext:
    """The :class:`~dfq.handler.Context` of a task run by :func:`drain` or :func:`inline`."""

    def __init__(self, queue: Queue, lease: Lease) -> None:
        self._queue = queue
        self.lease = lease
        self.task = lease.task
        self.fence = lease.fence
        self.attempt = lease.attempt
        #: Set it beforehand or in the handler, to see how the handler takes it.
        self.cancelled = threading.Event()
        #: What :meth:`progress` was told, in order.
        self.reports: list[tuple[float, str]] = []

    @property
    def log(self) -> Any:
        """A logger that has the task at hand."""
        import logging

        return logging.LoggerAdapter(logging.getLogger("dfq.task"), {"task_id": self.task.id})

    def progress(self, fraction: float, note: str = "") -> None:
        """Note how far the work is."""
        self.reports.append((fraction, note))

    def heartbeat(self) -> None:
        """Renew the lease; raises LeaseLost if it is no longer ours."""
        self.lease = self._queue.heartbeat(self.lease)

    def load_state(self) -> JSON:
        """What an earlier attempt saved, or None."""
        return self._queue.load_state(self.task.id)

    def save_state(self, state: JSON) -> None:
        """Keep a JSON value for the next attempt."""
        self._queue.save_state(self.lease, state)


def _finished(answer: Any) -> JSON:
    """What a handler returned; a coroutine is run to its end."""
    import inspect

    if not inspect.iscoroutine(answer):
        return answer
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(answer)
    # The test itself is a coroutine: its loop can't run another one inside.
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, answer).result()
