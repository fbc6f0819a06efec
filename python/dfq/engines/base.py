"""What every engine shares: the convenient verbs, said in terms of a few narrow primitives.

An engine implements the primitives (``_push``, ``_claim``, ``_ack`` …), which take arguments
that are checked, encoded and complete; this class does the checking, encoding and completing.
"""

from __future__ import annotations

import itertools
import os
from abc import ABC, abstractmethod

# Within a queue `list` is a verb.
from builtins import list as List
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Self, get_args

from dfq.ambient import Chance, Clock
from dfq.engines.arguments import checked_new, checked_worker, in_seconds, is_number
from dfq.errors import (
    DfqError,
    DuplicateTask,
    InvalidConfig,
    InvalidTask,
    LeaseLost,
    QueueBusy,
    QueueUnavailable,
)
from dfq.lease import Lease
from dfq.payload import JSON, decode, encode
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
from dfq.task import ErrorKind, NewTask, Task, check_id, make_task

if TYPE_CHECKING:
    from dfq.handler import TaskDecorator

#: push_many hands so many tasks at once to the engine: enough to share a sync, little to hold.
LOT = 10_000
LOT_BYTES = 16 << 20
#: Where a sweep costs little, a worker does it this often.
SWEEP_SECONDS = 60.0
#: Longer error texts are cut: a history must not outgrow its task.
MAX_ERROR_CHARACTERS = 4_000
#: A task's history keeps this many errors, the newest.
MAX_ERRORS = 20

_ERROR_KINDS = get_args(ErrorKind)


class EngineQueue(ABC):
    """The verbs of :class:`~dfq.queue.Queue` over an engine's primitives."""

    def __init__(self, url: str, *, policy: Policy, clock: Clock, chance: Chance) -> None:
        self._url = url
        self._policy = policy
        self._clock = clock
        self._chance = chance
        self._worker_id = ""
        self._worker_pid = 0
        self._decorator: TaskDecorator | None = None

    @property
    def url(self) -> str:
        """What :func:`dfq.open` opens again as this queue."""
        return self._url

    @property
    def policy(self) -> Policy:
        """The settings in force."""
        return self._policy

    @property
    def clock(self) -> Clock:
        """The clock this queue was opened with."""
        return self._clock

    @property
    def chance(self) -> Chance:
        """The randomness this queue was opened with."""
        return self._chance

    @property
    def poll_seconds(self) -> float:
        """An idle worker looks this often even if nothing woke it."""
        return self._policy.safety_poll_seconds

    @property
    def sweep_seconds(self) -> float:
        """A worker sweeps about this often."""
        return SWEEP_SECONDS

    @property
    def task(self) -> TaskDecorator:
        """Decorator that makes a function a named task of this queue."""
        if self._decorator is None:
            from dfq.handler import TaskDecorator

            self._decorator = TaskDecorator(self)
        return self._decorator

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
        """Store a task; when this returns it is safe. Raises DuplicateTask if the id exists."""
        new = self.new_task(
            payload,
            id=id,
            name=name,
            priority=priority,
            labels=labels,
            project=project,
            depends_on=depends_on,
            delay=delay,
            not_before=not_before,
            ttl=ttl,
            max_attempts=max_attempts,
            retry=retry,
            correlation_id=correlation_id,
        )
        (pushed,) = self._push([new])
        if not pushed.created:
            raise DuplicateTask(pushed.id, pushed.state or "unknown")
        return stored_task(new, self._policy)

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
        return make_task(
            payload,
            policy=self._policy,
            clock=self._clock,
            chance=self._chance,
            id=id,
            name=name,
            priority=priority,
            labels=labels,
            project=project,
            depends_on=depends_on,
            delay=delay,
            not_before=not_before,
            ttl=ttl,
            max_attempts=max_attempts,
            retry=retry,
            correlation_id=correlation_id,
        )

    def push_many(self, tasks: Iterable[NewTask]) -> List[Pushed]:
        """Store many at once, synced together. A duplicate is reported, the rest is stored.

        They are taken and stored in lots of 10,000 (or 16 MiB), one after another. A lot with a
        circle of dependencies is refused as a whole; the lots before it are stored and stay, the
        tasks behind it are not looked at. A task that is no NewTask refuses its lot the same way.
        """
        stream = iter(tasks)
        pushed: List[Pushed] = []
        while lot := _next_lot(stream):
            pushed += self._push(lot)
        return pushed

    # Getting work done

    def claim(
        self,
        worker_id: str | None = None,
        *,
        lease_seconds: float | None = None,
        filter: Filter = EVERYTHING,
    ) -> Lease | None:
        """Take one ready task, highest priority first, or None if there is none now."""
        worker_id = self._own_worker_id() if worker_id is None else checked_worker(worker_id)
        leases = self._claim(1, worker_id, self._lease_seconds(lease_seconds), filter)
        return leases[0] if leases else None

    def claim_many(
        self,
        limit: int,
        worker_id: str | None = None,
        *,
        lease_seconds: float | None = None,
        filter: Filter = EVERYTHING,
    ) -> List[Lease]:
        """Take up to ``limit`` ready tasks."""
        if not is_number(limit) or isinstance(limit, float) or limit < 0:
            raise InvalidConfig(f"limit is {limit!r}; it must be a whole number >= 0")
        worker_id = self._own_worker_id() if worker_id is None else checked_worker(worker_id)
        seconds = self._lease_seconds(lease_seconds)
        return self._claim(limit, worker_id, seconds, filter) if limit else []

    def heartbeat(self, lease: Lease, *, lease_seconds: float | None = None) -> Lease:
        """Renew the lease from now on; returns it with its new times."""
        return self._heartbeat(lease, self._lease_seconds(lease_seconds))

    def heartbeat_many(
        self, leases: Iterable[Lease], *, lease_seconds: float | None = None
    ) -> List[Lease | DfqError]:
        """Renew several leases as cheaply as the engine can; for one that is
        lost or can't be renewed now, its error."""
        return self._heartbeat_many(List(leases), self._lease_seconds(lease_seconds))

    def ack(self, lease: Lease, result: JSON = None) -> None:
        """The work is done. Exactly one ack per task succeeds."""
        limit = self._policy.max_result_bytes
        encoded = None if result is None else encode(result, limit=limit, what="result")
        self._ack(lease, encoded)

    def nack(
        self,
        lease: Lease,
        error: str = "",
        *,
        kind: str = "error",
        delay: float | timedelta | None = None,
    ) -> Outcome:
        """The work failed: try again after ``delay`` (or the retry policy's), or give up."""
        if kind not in _ERROR_KINDS:
            raise InvalidTask(f"kind {kind!r} is unknown; it is one of {', '.join(_ERROR_KINDS)}")
        if delay is None:
            retry = lease.task.retry or self._policy.retry
            seconds = retry.delay_seconds(lease.attempt, self._chance)
        else:
            seconds = in_seconds(delay)
        return self._nack(lease, bounded_text(error), kind, seconds)

    def release(self, lease: Lease, *, delay: float | timedelta | None = None) -> None:
        """Give the task back undone; this delivery does not count as an attempt."""
        self._release(lease, 0.0 if delay is None else in_seconds(delay))

    def bury(self, target: Lease | str, reason: str = "") -> None:
        """Move a held task (by lease) or an unheld one (by id) to failed."""
        if isinstance(target, Lease):
            self._bury_lease(target, bounded_text(reason))
        else:
            self._fail(check_id(target), bounded_text(reason), "buried", held=False)

    def cancel(self, task_id: str, reason: str = "") -> None:
        """Move a pending task to failed, held or not; its holder's lease is lost."""
        self._fail(check_id(task_id), bounded_text(reason), "cancelled", held=True)

    def save_state(self, lease: Lease, state: JSON) -> None:
        """Keep a JSON value with the task until it is finished."""
        self._save_state(lease, encode(state, limit=self._policy.max_result_bytes, what="state"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._url}>"

    # The primitives: what an engine is

    @abstractmethod
    def _push(self, tasks: List[NewTask]) -> List[Pushed]:
        """Store these, in one go; one answer each, in order. DependencyCycle stores none."""

    @abstractmethod
    def _claim(
        self, limit: int, worker_id: str, lease_seconds: float, filter: Filter
    ) -> List[Lease]:
        """Lease up to ``limit`` (at least 1) ready tasks."""

    @abstractmethod
    def _heartbeat(self, lease: Lease, lease_seconds: float) -> Lease:
        """Let the lease end ``lease_seconds`` from now."""

    def _heartbeat_many(
        self, leases: Sequence[Lease], lease_seconds: float
    ) -> List[Lease | DfqError]:
        """Renew several; an engine that has no cheaper way does it one by one."""
        answers: List[Lease | DfqError] = []
        for lease in leases:
            try:
                answers.append(self._heartbeat(lease, lease_seconds))
            except (LeaseLost, QueueUnavailable, QueueBusy) as error:
                answers.append(error)
        return answers

    @abstractmethod
    def _ack(self, lease: Lease, result: bytes | None) -> None:
        """Complete the task; ``result`` is JSON."""

    @abstractmethod
    def _nack(self, lease: Lease, error: str, kind: str, delay_seconds: float) -> Outcome:
        """Note the error; then back after the delay, or to failed with the last attempt."""

    @abstractmethod
    def _release(self, lease: Lease, delay_seconds: float) -> None:
        """Back after the delay, the attempt not counted."""

    @abstractmethod
    def _bury_lease(self, lease: Lease, reason: str) -> None:
        """To failed, by its holder."""

    @abstractmethod
    def _fail(self, task_id: str, reason: str, kind: str, held: bool) -> None:
        """To failed, by id. A leased task only if ``held``, else WrongState."""

    @abstractmethod
    def _save_state(self, lease: Lease, state: bytes) -> None:
        """Keep ``state``, which is JSON, with the task."""

    @abstractmethod
    def requeue(self, task_id: str) -> None:
        """Give a failed task its attempts back; its history and fence stay."""

    @abstractmethod
    def pause(self, reason: str = "") -> None:
        """Stop handing out tasks, for every worker of this queue. Running ones finish."""

    @abstractmethod
    def resume(self) -> None:
        """Undo :meth:`pause`."""

    @abstractmethod
    def get(self, task_id: str) -> Record | None:
        """All about one task, or None."""

    @abstractmethod
    def list(
        self, state: State | None = None, *, filter: Filter = EVERYTHING, limit: int | None = None
    ) -> Iterator[Record]:
        """Tasks in a state (or all), in no promised order."""

    @abstractmethod
    def leases(self) -> List[Lease]:
        """Who holds what."""

    @abstractmethod
    def stats(self) -> Stats:
        """Count everything."""

    @abstractmethod
    def purge(self, state: State | None = None, *, older_than_seconds: float | None = None) -> int:
        """Delete tasks for good; leased ones only by ``state="leased"``."""

    @abstractmethod
    def sweep(self) -> SweepReport:
        """Put right what crashes left behind."""

    @abstractmethod
    def doctor(self) -> List[Finding]:
        """Look for trouble. Changes nothing."""

    @abstractmethod
    def load_state(self, task_id: str) -> JSON:
        """What :meth:`save_state` kept for this task, or None."""

    @abstractmethod
    def wait(self, timeout_seconds: float) -> bool:
        """Block until there may be work, at most so long. True: worth a claim."""

    @abstractmethod
    def interrupt(self) -> None:
        """Wake every thread that is in :meth:`wait`."""

    @abstractmethod
    def close(self) -> None:
        """Let go of files and threads. Leases stay."""

    def _own_worker_id(self) -> str:
        # A forked child is another worker than its parent.
        pid = os.getpid()
        if self._worker_pid != pid:
            self._worker_id = f"{os.uname().nodename}-{pid}-{self._chance.bits(16):04x}"
            self._worker_pid = pid
        return self._worker_id

    def _lease_seconds(self, given: float | None) -> float:
        if given is None:
            return self._policy.lease_seconds
        if not is_number(given) or not 0 < given <= 1e9:
            raise InvalidConfig(
                f"lease_seconds is {given!r}; it must be a number of seconds above 0"
            )
        return float(given)


def _next_lot(stream: Iterator[NewTask]) -> List[NewTask]:
    lot: List[NewTask] = []
    size = 0
    for task in itertools.islice(stream, LOT):
        lot.append(checked_new(task))
        size += len(task.payload)
        if size >= LOT_BYTES:
            break
    return lot


def stored_task(new: NewTask, policy: Policy) -> Task:
    """The task that ``new`` becomes in a queue with this policy."""
    return Task(
        id=new.id,
        payload=decode(new.payload),
        name=new.name,
        priority=new.priority,
        labels=new.labels,
        project=new.project,
        depends_on=new.depends_on,
        created_at=new.created_at,
        not_before=new.not_before,
        expires_at=new.expires_at,
        max_attempts=new.max_attempts or policy.max_attempts,
        retry=new.retry,
        correlation_id=new.correlation_id,
        attempts=0,
        errors=(),
    )


def bounded_text(text: object) -> str:
    """``text`` as it may go into a history: not endless, and valid Unicode."""
    # A file name that is not UTF-8 reaches us as lone surrogates, which JSON can't hold.
    clean = str(text).encode(errors="backslashreplace").decode()
    if len(clean) <= MAX_ERROR_CHARACTERS:
        return clean
    return clean[: MAX_ERROR_CHARACTERS - 1] + "…"


def not_requeued(task_id: str, state: str) -> str:
    """Why a task that did not fail can't be requeued, and what can be done instead."""
    text = f"task {task_id!r} is {state}; only a failed task can be requeued"
    if state == "completed":
        return f"{text}. To run it once more, push it again under a new id"
    return text


def circle(start: str, last: str, came_from: Mapping[str, str]) -> str:
    """What is wrong with a dependency that closes a circle."""
    path = [start, last]
    while last != start:
        last = came_from[last]
        path.append(last)
    steps = " waits for ".join(repr(step) for step in reversed(path))
    return f"{steps}: none of them could ever run. Leave one of these dependencies out."
