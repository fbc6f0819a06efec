"""Outcomes: what a handler did becomes ack, nack, release or bury."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from logging import INFO
from pathlib import Path
from typing import Literal

from dfq.errors import (
    InvalidRecord,
    InvalidTask,
    LeaseLost,
    QueueBusy,
    QueueUnavailable,
    Reject,
    RetryLater,
    TaskNotFound,
    WrongState,
)
from dfq.payload import JSON
from dfq.queue import Queue
from dfq.record import Outcome
from dfq.worker.backoff import Backoff
from dfq.worker.delivery import Delivery
from dfq.worker.logs import LOGGER
from dfq.worker.results import Results

#: What became of a delivery, for the counts.
Settled = Literal["completed", "retried", "failed", "released", "lost"]

_PACKAGE = str(Path(__file__).parent)


class Settler:
    """Writes outcomes into the queue, through bad spells of it."""

    def __init__(
        self,
        queue: Queue,
        lease_seconds: float,
        give_up: threading.Event,
        results: Results | None = None,
    ) -> None:
        self._queue = queue
        self._results = results
        self._lease_seconds = lease_seconds
        self._give_up = give_up

    def returned(self, delivery: Delivery, result: JSON) -> Settled:
        """The handler returned."""
        rows: list[list[str]] = []
        if self._results is not None:
            try:
                # Before the lease is renewed: so these are older than those of any later lease.
                rows = self._results.rows(result)
            except InvalidRecord as error:
                message = f"the result does not fit its index: {error}"
                return self._write(delivery, lambda: self._nack(delivery, message, "error"))

        def put() -> None:
            if self._results is not None and rows:
                # Who lost the lease meanwhile must not put anything over what its winner puts.
                delivery.context.heartbeat()
                self._results.put(rows)
                rows.clear()

        def ack() -> Settled:
            try:
                self._queue.ack(delivery.lease, result)
            except InvalidTask as error:
                # The work is done: doing it again would not make its result storable.
                return self._bury(delivery, f"the work is done, but {error}")
            if LOGGER.isEnabledFor(INFO):
                seconds = self._queue.clock.boot() - delivery.started_at
                delivery.context.log.info("completed in %.3g s", seconds)
            return "completed"

        return self._write(delivery, ack, before=put)

    def raised(self, delivery: Delivery, error: BaseException) -> Settled:
        """The handler raised, or was stopped."""
        if delivery.cancel_reason in ("timeout", "stopping"):
            return self.stopped(delivery)
        if isinstance(error, RetryLater):
            delay = self._retry_later_seconds(delivery) if error.delay is None else error.delay
            return self._write(delivery, lambda: self._release(delivery, str(error), delay))
        if isinstance(error, Reject):
            return self._write(delivery, lambda: self._bury(delivery, str(error) or "rejected"))
        return self._write(delivery, lambda: self._nack(delivery, describe(error), "error"))

    def stopped(self, delivery: Delivery) -> Settled:
        """The worker ended the work: its time was up, or the worker stops."""
        if delivery.cancel_reason == "timeout":
            message = f"not done within {delivery.timeout_seconds:g} seconds"
            return self._write(delivery, lambda: self._nack(delivery, message, "timeout"))
        return self._write(delivery, lambda: self._release(delivery, "the worker stops", None))

    def _retry_later_seconds(self, delivery: Delivery) -> float:
        """A task that is put back again and again must not spin."""
        retry = delivery.context.task.retry or self._queue.policy.retry
        longest = max(1.0, retry.ceiling_seconds(delivery.lease.attempt))
        return self._queue.chance.uniform(longest / 2, longest)

    def _nack(self, delivery: Delivery, message: str, kind: str) -> Settled:
        outcome = self._queue.nack(delivery.lease, message, kind=kind)
        log = delivery.context.log
        if outcome is Outcome.FAILED:
            log.error("failed for good after attempt %d: %s", delivery.lease.attempt, message)
            return "failed"
        log.warning("failed, will be tried again: %s", message)
        return "retried"

    def _release(self, delivery: Delivery, why: str, delay: float | None) -> Settled:
        self._queue.release(delivery.lease, delay=delay)
        later = f" for {delay:g} s" if delay else ""
        delivery.context.log.info("put back%s%s", later, f": {why}" if why else "")
        return "released"

    def _bury(self, delivery: Delivery, reason: str) -> Settled:
        self._queue.bury(delivery.lease, reason)
        delivery.context.log.error("rejected, will not be tried again: %s", reason)
        return "failed"

    def _write(
        self,
        delivery: Delivery,
        verb: Callable[[], Settled],
        before: Callable[[], None] = lambda: None,
    ) -> Settled:
        """Call ``verb`` until it gets through, the lease is lost, or there is no more time.

        ``before`` goes first, with heartbeats going on.
        """
        until = self._queue.clock.boot() + self._lease_seconds
        backoff = Backoff(self._queue.chance, longest_seconds=10.0)
        while True:
            try:
                before()
                with delivery.context.lease_lock:
                    settled = verb()
                    delivery.context.settled = True
                    return settled
            except (LeaseLost, TaskNotFound, WrongState) as error:
                delivery.context.cancelled.set("lost")
                delivery.context.log.warning(
                    "outcome refused: %s", str(error) or type(error).__doc__
                )
                return "lost"
            except (QueueUnavailable, QueueBusy) as error:
                log, wait = delivery.context.log, backoff.next_seconds()
                if self._queue.clock.boot() + wait > until or self._give_up.is_set():
                    log.error("outcome not written, so it will be delivered again: %s", error)
                    return "lost"
                if backoff.failures == 1:
                    log.error("outcome not written yet, trying on: %s", error)
                self._give_up.wait(wait)


def describe(error: BaseException) -> str:
    """An exception for the task's history: what it says first, then where the user's code is."""
    try:
        said = "".join(traceback.format_exception_only(error)).strip()
    except Exception:  # a broken __str__ must not hide the failure
        said = type(error).__name__
    if isinstance(error, SystemExit):
        said = f"the handler called sys.exit({error.code!r})"
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(_PACKAGE)
    ]
    where = "".join(
        f"\n  {frame.filename}, line {frame.lineno}, in {frame.name}: {frame.line}"
        for frame in reversed(frames[-8:])
    )
    return said[:2_000] + where
