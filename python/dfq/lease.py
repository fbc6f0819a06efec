"""A lease: one worker's claim on one task."""

from __future__ import annotations

from dataclasses import dataclass

from dfq.task import Task


@dataclass(frozen=True)
class Lease:
    """The right to settle a task, as a value. Keep it and hand it back to the queue.

    Of all leases on a task only the newest is obeyed. ``fence`` grows with every lease on
    the task, for ever: pass it to outside systems that can refuse a smaller one.
    """

    task: Task
    worker_id: str
    #: Made anew for every claim, so that two leases are never mistaken for each other.
    lease_id: str
    fence: int
    #: Which delivery of the task this is, from 1.
    attempt: int
    host: str
    boot_id: str
    pid: int
    acquired_at: float
    heartbeat_at: float
    expires_at: float

    @property
    def task_id(self) -> str:
        """The id of the task this lease is on."""
        return self.task.id
