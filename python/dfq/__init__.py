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

from typing import TYPE_CHECKING

from dfq.task import NewTask, Task, TaskError

if TYPE_CHECKING:
    from dfq.compiler.index import Index
    from dfq.errors import (
        AlreadyCompleted,
        DependencyCycle,
        DfqError,
        DiskFull,
        DuplicateTask,
        HandlerError,
        InvalidConfig,
        InvalidIndex,
        InvalidPolicy,
        InvalidRecord,
        InvalidTask,
        InvalidURL,
        LayoutTooNew,
        LeaseLost,
        LeaseNotHeld,
        LeaseTaken,
        NoIndex,
        QueueBusy,
        QueueUnavailable,
        Reject,
        RetryLater,
        ShardDamaged,
        StoreBusy,
        StoreNotSafe,
        StoreRefused,
        StoreUnsure,
        TaskNotFound,
        WrongState,
    )
    from dfq.handler import Context, Handler, task
    from dfq.lease import Lease
    from dfq.opening import open
    from dfq.policy import Policy, RetryPolicy
    from dfq.queue import Queue
    from dfq.record import Filter, Finding, Outcome, Pushed, Record, State, Stats, SweepReport

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
    "Index",
    "InvalidConfig",
    "InvalidIndex",
    "InvalidPolicy",
    "InvalidRecord",
    "InvalidTask",
    "InvalidURL",
    "LayoutTooNew",
    "Lease",
    "LeaseLost",
    "LeaseNotHeld",
    "LeaseTaken",
    "NewTask",
    "NoIndex",
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
    "ShardDamaged",
    "State",
    "Stats",
    "StoreBusy",
    "StoreNotSafe",
    "StoreRefused",
    "StoreUnsure",
    "SweepReport",
    "Task",
    "TaskError",
    "TaskNotFound",
    "WrongState",
    "__version__",
    "open",
    "task",
]

#: Where the names are that are not errors. They are imported when somebody asks for them: a
#: short command uses few, and has nothing else to wait for.
_HOMES = {
    "Context": "handler",
    "Filter": "record",
    "Finding": "record",
    "Handler": "handler",
    "Index": "compiler.index",
    "Lease": "lease",
    "Outcome": "record",
    "Policy": "policy",
    "Pushed": "record",
    "Queue": "queue",
    "Record": "record",
    "RetryPolicy": "policy",
    "State": "record",
    "Stats": "record",
    "SweepReport": "record",
    "open": "opening",
    "task": "handler",
}

if not TYPE_CHECKING:  # so that a misspelt name stays a mistake for type checkers
    # The import above bound the module dfq.task; the name is the decorator's.
    globals().pop("task", None)

    def __getattr__(name: str) -> object:
        if name == "__version__":
            from importlib.metadata import version

            return version("dfq")
        if name not in __all__:
            raise AttributeError(f"module 'dfq' has no attribute {name!r}")
        from importlib import import_module

        found = getattr(import_module(f"dfq.{_HOMES.get(name, 'errors')}"), name)
        globals()[name] = found
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
