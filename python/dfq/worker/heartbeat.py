"""Heartbeats: a thread of their own, so that a busy handler can't starve them."""

from __future__ import annotations

import threading
from collections.abc import Callable

from dfq.errors import DfqError, LeaseLost, QueueBusy, QueueUnavailable
from dfq.lease import Lease
from dfq.queue import Queue
from dfq.worker.delivery import Delivery
from dfq.worker.logs import LOGGER
from dfq.worker.watchdog import Part


class Heartbeats:
    """Renews every lease this worker holds, and tells a delivery when its lease is lost."""

    def __init__(
        self,
        queue: Queue,
        interval_seconds: float,
        on_beat: Callable[[], None] | None = None,
        *,
        lease_seconds: float | None = None,
        part: Part | None = None,
    ) -> None:
        self._queue = queue
        self._lease_seconds = lease_seconds
        self._interval_seconds = interval_seconds
        self._on_beat = on_beat
        self._part = part or Part("the heartbeat", queue.clock)
        self._condition = threading.Condition()
        self._held: set[Delivery] = set()
        self._parked = False
        self._stopped = False
        self._failing = False
        #: Rounds that did not get through.
        self.failed = 0
        self._thread = threading.Thread(target=self._run, name="dfq-heartbeat", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; leases stay as they are."""
        with self._condition:
            self._stopped = True
            self._condition.notify_all()

    def join(self, timeout: float) -> None:
        """Wait for the thread, at most so long: a beat may hang in the queue."""
        self._thread.join(timeout)

    def add(self, delivery: Delivery) -> None:
        """Keep this lease alive."""
        with self._condition:
            self._held.add(delivery)
            # The thread sleeps without end only while nothing is held; waking it for
            # every task would cost more than the heartbeats do.
            if self._parked:
                self._condition.notify_all()

    def remove(self, delivery: Delivery) -> None:
        """Let this lease be."""
        with self._condition:
            self._held.discard(delivery)

    def held(self) -> list[Delivery]:
        """The deliveries whose leases are kept alive."""
        with self._condition:
            return list(self._held)

    def _run(self) -> None:
        clock = self._queue.clock
        while True:
            with self._condition:
                while not self._held and not self._stopped:
                    self._parked = True
                    self._part.rests()
                    self._condition.wait()
                    self._parked = False
                beat_at = clock.boot() + self._pause_seconds()
                self._part.moves(self._pause_seconds())
                while not self._stopped and (left := beat_at - clock.boot()) > 0:
                    self._condition.wait(left)
                if self._stopped:
                    self._part.rests()
                    return
                held = list(self._held)
            self._part.moves()
            self._beat(held)

    def _pause_seconds(self) -> float:
        # After a failed beat the next comes sooner: a lease has several tries before it ends.
        return self._interval_seconds / (4 if self._failing else 1)

    def _beat(self, held: list[Delivery]) -> None:
        problem: Exception | None = None
        try:
            for delivery, answer in self._renew(held):
                if isinstance(answer, LeaseLost):
                    self.remove(delivery)
                    delivery.context.log.warning("lease lost, the work is cancelled: %s", answer)
                elif isinstance(answer, DfqError):
                    problem = answer
        except (QueueUnavailable, QueueBusy) as error:
            problem = error
        except Exception as error:
            problem = error
            LOGGER.exception("heartbeats failed")
        self._note(problem)
        if held and problem is None and self._on_beat is not None:
            self._on_beat()

    def _renew(self, held: list[Delivery]) -> list[tuple[Delivery, Lease | DfqError]]:
        """Renew all at once. Any of them may be settled meanwhile: no outcome waits for a beat."""
        # One that is in use ends now, or there are several beats left before it does.
        unused = [one for one in held if not one.context.lease_lock.locked()]
        unsettled = [one for one in unused if not one.context.settled]
        answers = self._queue.heartbeat_many(
            [delivery.lease for delivery in unsettled], lease_seconds=self._lease_seconds
        )
        return [
            (delivery, answer)
            for delivery, answer in zip(unsettled, answers, strict=True)
            if delivery.context.renewed(answer)
        ]

    def _note(self, problem: Exception | None) -> None:
        self.failed += problem is not None
        if problem is not None and not self._failing:
            LOGGER.error("heartbeats fail, trying on: %s", problem)
        elif problem is None and self._failing:
            LOGGER.info("heartbeats are back")
        self._failing = problem is not None
