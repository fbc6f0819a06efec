"""A work queue that is just a folder. No broker to run.

>>> import dfq
>>> queue = dfq.open("memory://")
>>> task = queue.push({"city": "Bern"}, id="bern")
>>> lease = queue.claim()
>>> queue.ack(lease, result="done")
>>> queue.get("bern").result
'done'
"""

from __future__ import annotations

from dfq.errors import (
    AlreadyCompleted,
    DependencyCycle,
    DfqError,
    DiskFull,
    DuplicateTask,
    HandlerError,
    InvalidConfig,
    InvalidPolicy,
    InvalidTask,
    InvalidURL,
    LayoutTooNew,
    LeaseLost,
    LeaseNotHeld,
    LeaseTaken,
    QueueBusy,
    QueueUnavailable,
    Reject,
    RetryLater,
    TaskNotFound,
    WrongState,
)
from dfq.handler import Context, Handler, task
from dfq.lease import Lease
from dfq.opening import open
from dfq.policy import Policy, RetryPolicy
from dfq.queue import Queue
from dfq.record import Filter, Finding, Outcome, Pushed, Record, State, Stats, SweepReport
from dfq.task import NewTask, Task, TaskError

__version__: str

__all__ = [
    "AlreadyCompleted",
    "Context",
    "DependencyCycle",
    "DfqError",
    "DiskFull",
    "DuplicateTask",
    "Filter",
    "Finding",
    "Handler",
    "HandlerError",
    "InvalidConfig",
    "InvalidPolicy",
    "InvalidTask",
    "InvalidURL",
    "LayoutTooNew",
    "Lease",
    "LeaseLost",
    "LeaseNotHeld",
    "LeaseTaken",
    "NewTask",
    "Outcome",
    "Policy",
    "Pushed",
    "Queue",
    "QueueBusy",
    "QueueUnavailable",
    "Record",
    "Reject",
    "RetryLater",
    "RetryPolicy",
    "State",
    "Stats",
    "SweepReport",
    "Task",
    "TaskError",
    "TaskNotFound",
    "WrongState",
    "__version__",
    "open",
    "task",
]


def __getattr__(name: str) -> str:
    if name == "__version__":
        # importlib.metadata is slow to import, and few ask.
        from importlib.metadata import version

        return version("dfq")
    raise AttributeError(f"module 'dfq' has no attribute {name!r}")
