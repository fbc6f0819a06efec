"""Running deliveries: each through its handler, to exactly one outcome."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from inspect import isawaitable
from logging import DEBUG
from typing import TYPE_CHECKING, Any

from dfq.worker.delivery import Delivery
from dfq.worker.heartbeat import Heartbeats
from dfq.worker.logs import LOGGER
from dfq.worker.pool import Pool
from dfq.worker.settlement import Settled, Settler

if TYPE_CHECKING:
    from dfq.worker.coroutines import Coroutines

#: What a child exits with that a handler forked and then let run into the worker.
FORKED_EXIT_CODE = 70


class Runner:
    """Starts deliveries, and sees each to its outcome."""

    def __init__(
        self,
        settler: Settler,
        heartbeats: Heartbeats,
        *,
        fast_loop: bool,
        on_settled: Callable[[Delivery, Settled], None],
    ) -> None:
        self._settler = settler
        self._heartbeats = heartbeats
        self._fast_loop = fast_loop
        self._on_settled = on_settled
        self._lock = threading.Lock()
        self._running: set[Delivery] = set()
        self._coroutines: Coroutines | None = None
        self._pid = os.getpid()
        self.pool: Pool | None = None

    def running(self) -> list[Delivery]:
        """Deliveries whose outcome is not written yet."""
        with self._lock:
            return list(self._running)

    def add(self, delivery: Delivery) -> None:
        """Keep the lease alive from now on; the delivery is about to start."""
        with self._lock:
            self._running.add(delivery)
        self._heartbeats.add(delivery)

    def start(self, delivery: Delivery) -> None:
        """Run the handler in this thread; a coroutine goes to the event loop."""
        try:
            if LOGGER.isEnabledFor(DEBUG):
                delivery.context.log.debug("started")
            result = delivery.entry.invoke(delivery.context)
        except BaseException as error:
            self._end_if_forked(delivery)
            self._conclude(delivery, None, error)
            return
        self._end_if_forked(delivery)
        if isawaitable(result):
            delivery.in_thread = False
            self._loop().start(
                result,
                delivery.context,
                lambda value, error: self._conclude_elsewhere(delivery, value, error),
            )
        else:
            self._conclude(delivery, result, None)

    def give_up(self, delivery: Delivery) -> None:
        """Settle a delivery that was told to stop, without waiting for its handler."""
        if delivery.decide():
            delivery.abandoned = True
            if delivery.in_thread:
                self._pool.abandon()
            self._pool.submit(
                lambda: self._settled(delivery, lambda: self._settler.stopped(delivery))
            )

    def stop(self, timeout: float) -> None:
        """End the event loop, if there is one."""
        if self._coroutines is not None:
            self._coroutines.stop(timeout)

    @property
    def _pool(self) -> Pool:
        assert self.pool is not None
        return self.pool

    def _loop(self) -> Coroutines:
        with self._lock:
            if self._coroutines is None:
                from dfq.worker.coroutines import Coroutines

                self._coroutines = Coroutines(fast=self._fast_loop)
            return self._coroutines

    def _conclude(self, delivery: Delivery, result: Any, error: BaseException | None) -> None:
        if not delivery.decide():
            if delivery.in_thread:
                self._pool.returned()
            delivery.context.log.info("the handler ended after its time; its outcome is dropped")
        elif error is None:
            self._settled(delivery, lambda: self._settler.returned(delivery, result))
        else:
            self._settled(delivery, lambda: self._settler.raised(delivery, error))

    def _conclude_elsewhere(
        self, delivery: Delivery, result: Any, error: BaseException | None
    ) -> None:
        """From the event loop, which must not block: a thread writes the outcome."""
        self._end_if_forked(delivery)
        self._pool.submit(lambda: self._conclude(delivery, result, error))

    def _settled(self, delivery: Delivery, settle: Callable[[], Settled]) -> None:
        settled: Settled = "lost"
        try:
            settled = settle()
        except Exception:
            delivery.context.log.exception("outcome not written, so it will be delivered again")
        finally:
            self._heartbeats.remove(delivery)
            with self._lock:
                self._running.discard(delivery)
            self._on_settled(delivery, settled)
            self._pool.finish()

    def _end_if_forked(self, delivery: Delivery) -> None:
        """A child that the handler forked must not go on as a second worker."""
        if os.getpid() == self._pid:
            return
        message = (
            f"dfq: a process forked by the handler of task {delivery.task_id} came back into "
            "the worker and is ended; end such a process with os._exit()\n"
        )
        try:
            sys.stdout.flush()
            sys.stderr.write(message)
            sys.stderr.flush()
        finally:
            os._exit(FORKED_EXIT_CODE)
