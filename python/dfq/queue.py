"""The verbs of a queue. Every engine has them all, and passes the same conformance suite."""

from __future__ import annotations

# Within a queue `list` is a verb.
from builtins import list as List
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Protocol, runtime_checkable

from dfq.ambient import Chance, Clock
from dfq.errors import DfqError
from dfq.handler import TaskDecorator
from dfq.lease import Lease
from dfq.payload import JSON
from dfq.policy import Policy, RetryPolicy
from dfq.record import (
    EVERYTHING,
    Filter,
    Finding,
    Outcome,
    Pushed,
    Record,
    State,
    Stats,
    SweepReport,
)
from dfq.task import NewTask, Task


@runtime_checkable
class Queue(Protocol):
    """A work queue. Verbs are plain synchronous calls, safe from threads.

    Delivery is at least once, completion is once. A verb that takes a lease raises
    :class:`~dfq.errors.LeaseLost` and changes nothing when the lease is not the newest.
    """

    @property
    def url(self) -> str:
        """What :func:`dfq.open` opens again as this queue."""
        ...

    @property
    def policy(self) -> Policy:
        """The settings in force."""
        ...

    @property
    def clock(self) -> Clock:
        """The clock this queue was opened with."""
        ...

    @property
    def chance(self) -> Chance:
        """The randomness this queue was opened with."""
        ...

    @property
    def poll_seconds(self) -> float:
        """An idle worker looks this often even if nothing woke it."""
        ...

    @property
    def sweep_seconds(self) -> float:
        """A worker sweeps about this often."""
        ...

    # Putting work in

    def push(
        self,
        payload: JSON,
        *,
        id: str | None = None,
        name: str | None = None,
        priority: int | str = "normal",
        labels: Iterable[str] = (),
        project: str | None = None,
        depends_on: Iterable[str] = (),
        delay: float | timedelta | None = None,
        not_before: float | datetime | None = None,
        ttl: float | timedelta | None = None,
        max_attempts: int | None = None,
        retry: RetryPolicy | None = None,
        correlation_id: str | None = None,
    ) -> Task:
        """Store a task; when this returns it survives a power cut.

        Raises DuplicateTask if the id exists in any state, DependencyCycle, InvalidTask.
        """
        ...

    def new_task(
        self,
        payload: JSON,
        *,
        id: str | None = None,
        name: str | None = None,
        priority: int | str = "normal",
        labels: Iterable[str] = (),
        project: str | None = None,
        depends_on: Iterable[str] = (),
        delay: float | timedelta | None = None,
        not_before: float | datetime | None = None,
        ttl: float | timedelta | None = None,
        max_attempts: int | None = None,
        retry: RetryPolicy | None = None,
        correlation_id: str | None = None,
    ) -> NewTask:
        """Check the same options as :meth:`push`, for :meth:`push_many`."""
        ...

    def push_many(self, tasks: Iterable[NewTask]) -> List[Pushed]:
        """Store many at once, synced together. A duplicate is reported, the rest is stored.

        They are taken and stored in lots of 10,000 (or 16 MiB), one after another. A lot with a
        circle of dependencies is refused as a whole; the lots before it are stored and stay, the
        tasks behind it are not looked at. A task that is no NewTask refuses its lot the same way.
        """
        ...

    # Getting work done

    def claim(
        self,
        worker_id: str | None = None,
        *,
        lease_seconds: float | None = None,
        filter: Filter = EVERYTHING,
    ) -> Lease | None:
        """Take one ready task, highest priority first, or None if there is none now."""
        ...

    def claim_many(
        self,
        limit: int,
        worker_id: str | None = None,
        *,
        lease_seconds: float | None = None,
        filter: Filter = EVERYTHING,
    ) -> List[Lease]:
        """Take up to ``limit`` ready tasks."""
        ...

    def heartbeat(self, lease: Lease, *, lease_seconds: float | None = None) -> Lease:
        """Renew the lease from now on; returns it with its new times."""
        ...

    def heartbeat_many(
        self, leases: Iterable[Lease], *, lease_seconds: float | None = None
    ) -> List[Lease | DfqError]:
        """Renew several leases as cheaply as the engine can; for one that is
        lost or can't be renewed now, its error."""
        ...

    def ack(self, lease: Lease, result: JSON = None) -> None:
        """The work is done. Exactly one ack per task succeeds."""
        ...

    def nack(
        self,
        lease: Lease,
        error: str = "",
        *,
        kind: str = "error",
        delay: float | timedelta | None = None,
    ) -> Outcome:
        """The work failed: try again after ``delay`` (or the retry policy's), or give up."""
        ...

    def release(self, lease: Lease, *, delay: float | timedelta | None = None) -> None:
        """Give the task back undone; this delivery does not count as an attempt."""
        ...

    def bury(self, target: Lease | str, reason: str = "") -> None:
        """Move a held task (by lease) or an unheld one (by id) to failed."""
        ...

    # Looking after it

    def requeue(self, task_id: str) -> None:
        """Give a failed task its attempts back; its history and fence stay."""
        ...

    def cancel(self, task_id: str, reason: str = "") -> None:
        """Move a pending task to failed, held or not; its holder's lease is lost."""
        ...

    def pause(self, reason: str = "") -> None:
        """Stop handing out tasks, for every worker of this queue. Running ones finish."""
        ...

    def resume(self) -> None:
        """Undo :meth:`pause`."""
        ...

    def get(self, task_id: str) -> Record | None:
        """All about one task, or None."""
        ...

    def list(
        self, state: State | None = None, *, filter: Filter = EVERYTHING, limit: int | None = None
    ) -> Iterator[Record]:
        """Tasks in a state (or all), in no promised order."""
        ...

    def leases(self) -> List[Lease]:
        """Who holds what."""
        ...

    def stats(self) -> Stats:
        """Count everything."""
        ...

    def purge(self, state: State | None = None, *, older_than_seconds: float | None = None) -> int:
        """Delete tasks for good, all or those in a state; never one that is leased, unless
        ``state="leased"`` asks for just that."""
        ...

    def sweep(self) -> SweepReport:
        """Put right what crashes left behind. Any worker does this by itself now and then."""
        ...

    def doctor(self) -> List[Finding]:
        """Look for trouble: damaged files, stuck tasks, a full disk. Changes nothing."""
        ...

    # State kept between attempts

    def load_state(self, task_id: str) -> JSON:
        """What :meth:`save_state` kept for this task, or None."""
        ...

    def save_state(self, lease: Lease, state: JSON) -> None:
        """Keep a JSON value with the task until it is finished."""
        ...

    # The queue itself

    def wait(self, timeout_seconds: float) -> bool:
        """Block until there may be work, at most so long. True: worth a claim."""
        ...

    def interrupt(self) -> None:
        """Wake every thread that is in :meth:`wait`."""
        ...

    def close(self) -> None:
        """Let go of files and threads. Leases stay."""
        ...

    @property
    def task(self) -> TaskDecorator:
        """Decorator that makes a function a named task of this queue."""
        ...

    def __enter__(self) -> Queue: ...

    def __exit__(self, *exc: object) -> None: ...


@runtime_checkable
class PaidByRequest(Protocol):
    """What a queue can do besides if every request costs money: its workers ask this instead."""

    def sight(self) -> int | None:
        """Stands for all that the last claim saw of the queue: while it is the same, nothing moved.

        None if that was not all of it.
        """
        ...

    def count_unfinished(self) -> int:
        """About how many tasks may still be done, without a look into any."""
        ...

    def pending_stats(self) -> Stats:
        """Like :meth:`Queue.stats`, but what is finished may be left out."""
        ...
