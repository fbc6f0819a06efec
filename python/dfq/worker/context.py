"""What a handler is handed: the task it works on, and what it can say about it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from dfq.errors import DfqError, LeaseLost
from dfq.handler import Context
from dfq.lease import Lease
from dfq.payload import JSON
from dfq.queue import Queue
from dfq.task import Task

if TYPE_CHECKING:
    import logging

__all__ = ["CancelReason", "CancelSignal", "Context", "TaskContext"]

#: Why work is to stop: its lease is lost, its time is up, or the worker stops.
CancelReason = Literal["lost", "timeout", "stopping"]


class CancelSignal:
    """An event that is set once, with a reason, and calls those who asked to be called."""

    def __init__(self) -> None:
        # Made when somebody waits: most tasks end before anybody does.
        self._event: threading.Event | None = None
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], None]] = []
        self._reason: CancelReason | None = None

    @property
    def reason(self) -> CancelReason | None:
        """Why it was set, or None."""
        return self._reason

    def is_set(self) -> bool:
        """Whether to stop."""
        return self._reason is not None

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, at most so long."""
        with self._lock:
            if self._reason is not None:
                return True
            if self._event is None:
                self._event = threading.Event()
        return self._event.wait(timeout)

    def set(self, reason: CancelReason) -> bool:
        """Set it; False if it was set before, for then the first reason stays."""
        with self._lock:
            if self._reason is not None:
                return False
            self._reason = reason
            callbacks, self._callbacks = self._callbacks, []
            if self._event is not None:
                self._event.set()
        for callback in callbacks:
            callback()
        return True

    def when_set(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` when it is set; at once if it is."""
        with self._lock:
            if self._reason is None:
                self._callbacks.append(callback)
                return
        callback()


class TaskContext:
    """The :class:`~dfq.handler.Context` of one delivery in a worker."""

    def __init__(self, queue: Queue, lease: Lease, *, lease_seconds: float | None = None) -> None:
        self._queue = queue
        self._lease = lease
        self._lease_seconds = lease_seconds
        self._log: logging.LoggerAdapter[logging.Logger] | None = None
        self._cancelled = CancelSignal()
        # Held around every verb that takes the lease, but for the worker's own heartbeats.
        self.lease_lock = threading.Lock()
        #: True once the outcome is written: then there is no lease left to renew.
        self.settled = False
        #: The last :meth:`progress`: fraction and note.
        self.last_progress: tuple[float, str] | None = None

    @property
    def queue(self) -> Queue:
        """The queue the task came from."""
        return self._queue

    @property
    def task(self) -> Task:
        """The task."""
        return self._lease.task

    @property
    def lease(self) -> Lease:
        """The lease, as it was last renewed."""
        return self._lease

    @property
    def fence(self) -> int:
        """Grows with every delivery of the task."""
        return self._lease.fence

    @property
    def attempt(self) -> int:
        """Which delivery this is, from 1."""
        return self._lease.attempt

    @property
    def cancelled(self) -> CancelSignal:
        """Set when to stop."""
        return self._cancelled

    @property
    def log(self) -> Any:
        """A logger that names the task in every line."""
        if self._log is None:
            from dfq.worker.logs import task_logger

            self._log = task_logger(self._lease)
        return self._log

    def progress(self, fraction: float, note: str = "") -> None:
        """Say how far the work is, from 0 to 1."""
        # Written so that NaN becomes 0: a rounding slip must not fail the task.
        bounded = min(1.0, fraction) if fraction > 0 else 0.0
        self.last_progress = (bounded, note[:200])
        self.log.debug("%d %%%s", round(bounded * 100), f" {note}" if note else "")

    def heartbeat(self) -> None:
        """Renew the lease now; raises LeaseLost, and cancels the work, if it is not ours."""
        try:
            with self.lease_lock:
                if not self.settled:
                    self._lease = self._queue.heartbeat(
                        self._lease, lease_seconds=self._lease_seconds
                    )
        except LeaseLost:
            self._cancelled.set("lost")
            raise

    def renewed(self, answer: Lease | DfqError) -> bool:
        """Take in what became of the lease when several were renewed at once.

        False: it was used meanwhile, or has ended, so that nothing is to be learnt from it.
        """
        if not self.lease_lock.acquire(blocking=False):
            return False
        try:
            if self.settled:
                return False
            if isinstance(answer, LeaseLost):
                self._cancelled.set("lost")
            elif isinstance(answer, Lease):
                self._lease = answer
            return True
        finally:
            self.lease_lock.release()

    def load_state(self) -> JSON:
        """What an earlier attempt saved, or None."""
        return self._queue.load_state(self.task.id)

    def save_state(self, state: JSON) -> None:
        """Keep a JSON value for the next attempt."""
        with self.lease_lock:
            self._queue.save_state(self._lease, state)
