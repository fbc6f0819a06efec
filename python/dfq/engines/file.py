"""The file engine: a queue that is a folder. The core is in Rust; this converts and explains."""

from __future__ import annotations

import os

# Within a queue `list` is a verb.
from builtins import list as List
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from dfq import _core
from dfq.ambient import SYSTEM_CHANCE, SYSTEM_CLOCK, Chance, Clock
from dfq.engines.arguments import checked_state
from dfq.engines.base import EngineQueue, not_requeued
from dfq.engines.file_folder import is_made, is_queue, refuse_file
from dfq.engines.file_values import (
    filter_arguments,
    lease_from,
    policy_in,
    record_from,
    task_arguments,
)
from dfq.errors import (
    AlreadyCompleted,
    DependencyCycle,
    DfqError,
    DiskFull,
    InvalidPolicy,
    InvalidTask,
    LayoutTooNew,
    LeaseNotHeld,
    LeaseTaken,
    QueueBusy,
    QueueUnavailable,
    TaskNotFound,
    WrongState,
)
from dfq.lease import Lease
from dfq.payload import JSON, decode
from dfq.policy import Policy
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
from dfq.task import NewTask, check_id

T = TypeVar("T")

#: A task.json is its payload, its history (512 KiB at most) and the rest of its envelope.
_ENVELOPE_BYTES = 655_360
#: Without inotify (network file systems, macOS) a waiting worker looks this often.
_POLL_SECONDS = 1.0

_ERRORS: dict[str, type[DfqError]] = {
    "invalid": InvalidTask,
    "cycle": DependencyCycle,
    "not_found": TaskNotFound,
    "wrong_state": WrongState,
    "lease_taken": LeaseTaken,
    "lease_not_held": LeaseNotHeld,
    "completed": AlreadyCompleted,
    "busy": QueueBusy,
    "disk_full": DiskFull,
    "unavailable": QueueUnavailable,
    "layout_too_new": LayoutTooNew,
}

_AREAS: dict[State, str] = {
    "ready": "pending",
    "delayed": "pending",
    "blocked": "pending",
    "leased": "pending",
    "completed": "completed",
    "failed": "failed",
}


class FileQueue(EngineQueue):
    """A queue in a folder. The folder is made at the first push or claim."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        policy: Policy | None = None,
        clock: Clock = SYSTEM_CLOCK,
        chance: Chance = SYSTEM_CHANCE,
    ) -> None:
        self._path = os.path.abspath(os.fspath(path))
        super().__init__(
            self._path, policy=policy or policy_in(self._path), clock=clock, chance=chance
        )
        self._opened: _core.FileQueue | None = None

    @property
    def path(self) -> str:
        """The folder."""
        return self._path

    @property
    def core(self) -> _core.FileQueue:
        """The core's handle on the folder, made at its first use."""
        if self._opened is None:
            self._opened = self._open()
        return self._opened

    def _open(self) -> _core.FileQueue:
        limit = max(self._policy.max_payload_bytes, self._policy.max_result_bytes)
        seed = self._chance.bits(128)
        try:
            return _told(
                _core.FileQueue,
                self._path,
                self._policy.max_attempts,
                limit + _ENVELOPE_BYTES,
                seed,
            )
        except QueueUnavailable:
            refuse_file(self._path)
            raise

    def _exists(self) -> bool:
        return self._opened is not None or is_made(self._path)

    def _moment(self) -> tuple[int, int]:
        clock = self._clock
        return int(clock.wall() * 1000), int(clock.boot() * 1000)

    # The primitives

    def _push(self, tasks: List[NewTask]) -> List[Pushed]:
        try:
            areas = _told(self.core.push, [task_arguments(task) for task in tasks])
        except DfqError:
            raise
        except (TypeError, ValueError) as error:
            # Only a NewTask that was not made by new_task() gets this far.
            raise InvalidTask(f"a task can't be stored: {error}") from None
        return [
            Pushed(task.id, created=True) if area is None else self._duplicate(task.id, area)
            for task, area in zip(tasks, areas, strict=True)
        ]

    def _duplicate(self, task_id: str, area: str) -> Pushed:
        record = self._readable(task_id) if area == "pending" else None
        return Pushed(task_id, created=False, state=area if record is None else record.state)

    def _claim(
        self, limit: int, worker_id: str, lease_seconds: float, filter: Filter
    ) -> List[Lease]:
        wanted = None if filter is EVERYTHING else filter_arguments(filter)
        lease_ms = max(1, int(lease_seconds * 1000))
        moment = self._moment()
        try:
            core = self._opened or self.core
            claimed = core.claim(worker_id, limit, lease_ms, wanted, moment)
        except _core.CoreError as error:
            raise _explained(error) from None
        leases = []
        for task, lease in claimed:
            try:
                leases.append(lease_from(task, lease, self._policy, moment[0] / 1000))
            except ValueError as error:
                # JSON that the core's parser takes and ours does not, such as a nesting that
                # is too deep for it: nobody could work on it.
                _told(self.core.quarantine, task["id"], f"task.json: {error}")
        return leases

    def _heartbeat(self, lease: Lease, lease_seconds: float) -> Lease:
        lease_ms = max(1, int(lease_seconds * 1000))
        renewed = _told(
            self.core.heartbeat,
            lease.task.id,
            lease.lease_id,
            lease.fence,
            lease_ms,
            self._moment(),
        )
        return Lease(task=lease.task, **renewed)

    def _ack(self, lease: Lease, result: bytes | None) -> None:
        try:
            core = self._opened or self.core
            wall_ms = int(self._clock.wall() * 1000)
            core.ack(lease.task.id, lease.lease_id, lease.fence, result, wall_ms)
        except _core.CoreError as error:
            raise _explained(error) from None

    def _nack(self, lease: Lease, error: str, kind: str, delay_seconds: float) -> Outcome:
        again = _told(
            self.core.nack,
            lease.task.id,
            lease.lease_id,
            lease.fence,
            kind,
            error,
            int(delay_seconds * 1000),
            self._moment(),
        )
        return Outcome.RETRY if again else Outcome.FAILED

    def _release(self, lease: Lease, delay_seconds: float) -> None:
        delay_ms = int(delay_seconds * 1000)
        identity = (lease.task.id, lease.lease_id, lease.fence)
        _told(self.core.release, *identity, delay_ms, self._moment())

    def _bury_lease(self, lease: Lease, reason: str) -> None:
        identity = (lease.task.id, lease.lease_id, lease.fence)
        _told(self.core.bury, *identity, reason, self._moment())

    def _fail(self, task_id: str, reason: str, kind: str, held: bool) -> None:
        self._need(task_id)
        _told(self.core.fail, task_id, reason, kind, held, self._moment())

    def _save_state(self, lease: Lease, state: bytes) -> None:
        _told(self.core.save_state, lease.task.id, lease.lease_id, lease.fence, state)

    # The other verbs

    def requeue(self, task_id: str) -> None:
        """Give a failed task its attempts back; its history and fence stay."""
        self._need(check_id(task_id))
        try:
            _told(self.core.requeue, task_id)
        except WrongState:
            record = self.get(task_id)
            if record is None or record.state == "failed":
                raise
            raise WrongState(not_requeued(task_id, record.state)) from None

    def pause(self, reason: str = "") -> None:
        """Stop handing out tasks, for every worker of this queue. Running ones finish."""
        import orjson

        note = {"at": self._clock.wall(), "by": self._own_worker_id(), "reason": reason}
        _told(self.core.pause, orjson.dumps(note))

    def resume(self) -> None:
        """Undo :meth:`pause`."""
        if self._exists():
            _told(self.core.resume)

    def get(self, task_id: str) -> Record | None:
        """All about one task, or None."""
        check_id(task_id)
        if not self._exists():
            return None
        moment = self._moment()
        found = _told(self.core.get, task_id, moment)
        if found is None:
            return None
        try:
            return record_from(found, self._policy, moment[0] / 1000)
        except ValueError as error:
            raise WrongState(f"task {task_id!r} is damaged: {error}") from None

    def list(
        self, state: State | None = None, *, filter: Filter = EVERYTHING, limit: int | None = None
    ) -> Iterator[Record]:
        """Tasks in a state (or all), in no promised order."""
        areas = _areas(state)
        remaining = limit if limit is not None else -1
        for task_id in self._ids(areas):
            if remaining == 0:
                return
            record = self._readable(task_id)
            # A task may move on while the listing runs.
            if record is None or state not in (None, record.state):
                continue
            if filter.matches(record.task):
                remaining -= 1
                yield record

    def _readable(self, task_id: str) -> Record | None:
        try:
            return self.get(task_id)
        except WrongState:
            # Damaged: a claim sets it aside, and `doctor` tells.
            return None

    def _ids(self, areas: List[str]) -> Iterator[str]:
        if self._exists():
            for area in areas:
                for shard in range(1 if self.core.is_flat else 256):
                    yield from _told(self.core.list, area, shard)

    def leases(self) -> List[Lease]:
        """Who holds what."""
        return [record.lease for record in self.list("leased") if record.lease is not None]

    def stats(self) -> Stats:
        """Count everything."""
        if not self._exists():
            return Stats()
        moment = self._moment()
        counts = _told(self.core.stats, moment)
        oldest_ms = counts.pop("oldest_ready_ms")
        age = None if oldest_ms is None else max(0.0, (moment[0] - oldest_ms) / 1000)
        return Stats(**counts, oldest_ready_seconds=age, paused=self.core.is_paused)

    def purge(self, state: State | None = None, *, older_than_seconds: float | None = None) -> int:
        """Delete tasks for good; leased ones only by ``state="leased"``."""
        removed = 0
        now = self._clock.wall()
        areas = _areas(state)
        for task_id in self._ids(areas):
            record = self._readable(task_id)
            if record is None or state not in (None, record.state):
                continue
            if state is None and record.state == "leased":
                continue
            since = record.finished_at or record.task.created_at
            if older_than_seconds is not None and now - since < older_than_seconds:
                continue
            held = record.state == "leased"
            removed += _told(self.core.remove, _AREAS[record.state], task_id, held)
        if state in (None, "completed") and self._exists():
            before = None if older_than_seconds is None else int((now - older_than_seconds) * 1000)
            removed += _told(self.core.purge_archive, before)
        return removed

    def sweep(self) -> SweepReport:
        """Put right what crashes left behind."""
        if not self._exists():
            return SweepReport()
        age_ms = int(self._policy.finished_after_seconds * 1000)
        report = _told(self.core.sweep, self._policy.finished, age_ms, self._moment())
        return SweepReport(**report)

    def doctor(self) -> List[Finding]:
        """Look for trouble. Changes nothing."""
        if not self._exists():
            if is_queue(self._path):
                return [Finding("ok", self._path, "nothing was pushed yet; the policy is there")]
            advice = "Check the path, or push a first task: that makes it."
            return [Finding("warning", self._path, "there is no queue here", advice)]
        from dfq.engines import file_doctor

        quarantined = _told(self.core.quarantined)
        return file_doctor.examine(self, self._path, self.core.is_network, quarantined)

    def load_state(self, task_id: str) -> JSON:
        """What :meth:`save_state` kept for this task, or None."""
        check_id(task_id)
        state = _told(self.core.load_state, task_id) if self._exists() else None
        try:
            return None if state is None else decode(state)
        except ValueError as error:
            raise WrongState(f"state.json of task {task_id!r} is damaged: {error}") from None

    def wait(self, timeout_seconds: float) -> bool:
        """Block until there may be work, at most so long. True: worth a claim."""
        timeout_ms = int(max(0.0, min(timeout_seconds, 1e9)) * 1000)
        return _told(self.core.wait, timeout_ms, int(_POLL_SECONDS * 1000), self._moment())

    def interrupt(self) -> None:
        """Wake every thread that is in :meth:`wait`."""
        if self._opened is not None:
            self._opened.interrupt()

    def close(self) -> None:
        """Let go of the folder. Leases stay."""
        self.interrupt()
        self._opened = None

    def _need(self, task_id: str) -> None:
        if not self._exists():
            raise TaskNotFound(f"there is no task {task_id!r}: {self._path} has no queue")


def _areas(state: State | None) -> List[str]:
    state = checked_state(state)
    return ["pending", "failed", "completed"] if state is None else [_AREAS[state]]


def _told(call: Callable[..., T], *arguments: Any) -> T:
    """Call the core, and say its errors in ours."""
    try:
        return call(*arguments)
    except _core.CoreError as error:
        raise _explained(error) from None


def _explained(error: _core.CoreError) -> DfqError:
    """Our error for one of the core's."""
    kind, message = error.args
    if kind == "invalid" and "queue.json" in message:
        return InvalidPolicy(message)
    return _ERRORS[kind](message)
