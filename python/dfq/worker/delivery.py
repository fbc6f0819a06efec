"""One delivery: a leased task on its way through a handler."""

from __future__ import annotations

import threading

from dfq.lease import Lease
from dfq.queue import Queue
from dfq.worker.context import CancelReason, TaskContext
from dfq.worker.handlers import Entry


class Delivery:
    """A task in the hands of this worker, from its claim until its outcome is written."""

    def __init__(
        self,
        queue: Queue,
        lease: Lease,
        entry: Entry,
        *,
        timeout_seconds: float | None,
        lease_seconds: float | None,
    ) -> None:
        self.entry = entry
        self.context = TaskContext(queue, lease, lease_seconds=lease_seconds)
        self._clock = queue.clock
        self.started_at = self.ended_at = queue.clock.boot()
        limit = entry.timeout_seconds or timeout_seconds
        self.timeout_seconds = limit
        #: On the boot clock; None for no limit.
        self.deadline = None if limit is None else self.started_at + limit
        #: On the boot clock: when to stop waiting for it, once it was told to stop.
        self.give_up_at: float | None = None
        #: True once the worker has stopped waiting for it: its thread is on its own.
        self.abandoned = False
        #: Whether its handler occupies a thread of the pool.
        self.in_thread = True
        self._lock = threading.Lock()
        self._decided = False

    @property
    def lease(self) -> Lease:
        """The lease, as it was last renewed."""
        return self.context.lease

    @property
    def task_id(self) -> str:
        """The id of the task."""
        return self.context.task.id

    @property
    def cancel_reason(self) -> CancelReason | None:
        """Why it was told to stop, or None."""
        return self.context.cancelled.reason

    def decide(self) -> bool:
        """True for the first caller only: of two outcomes, the later one is dropped."""
        with self._lock:
            first, self._decided = not self._decided, True
            if first:
                self.ended_at = self._clock.boot()
        return first
