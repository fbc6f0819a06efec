"""What stands in a queue's objects: task.json and lease.json, to and from JSON.

task.json is that of the file engine. lease.json is the task's register: every change of hands is
one conditional write of it, and an outcome is committed there before anything else is touched.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Final, Literal, cast

import orjson

from dfq.engines.base import MAX_ERRORS
from dfq.engines.s3.fields import (
    Damaged,
    box,
    count,
    etag,
    flag,
    maybe_seconds,
    maybe_stamp,
    seconds_of,
    span,
    stamp,
    text,
    texts,
)
from dfq.errors import InvalidPolicy, InvalidTask
from dfq.lease import Lease
from dfq.policy import Policy, RetryPolicy
from dfq.task import PRIORITIES, ErrorKind, NewTask, Task, TaskError, check_id, check_priority

__all__ = [
    "NORMAL",
    "VERSION",
    "Damaged",
    "LeaseFile",
    "LeaseState",
    "LeftAlone",
    "TaskFile",
    "dumps",
    "error_fields",
    "loads",
    "new_task_body",
    "own",
    "seconds_of",
    "stamp",
    "without_nulls",
]

#: The version of the bodies this module writes.
VERSION: Final = 1

NORMAL: Final = PRIORITIES["normal"]

#: leased: somebody works on it. back: given back, or taken from the silent. failed, completed: the
#: end. free: nobody's, in stores that can't delete on a condition.
LeaseState = Literal["leased", "back", "failed", "completed", "free"]
_STATES = ("leased", "back", "failed", "completed", "free")


class LeftAlone(ValueError):
    """A body is not for this dfq to touch: a newer one wrote it, or it is larger than any of ours.

    The text says why, and what to do.
    """


def new_task_body(new: NewTask, nonce: str, written_at: float) -> bytes:
    """task.json of a task that is pushed, and sent off then."""
    fields: dict[str, Any] = {
        "dfq": VERSION,
        "id": new.id,
        "name": new.name,
        "priority": new.priority,
        "labels": list(new.labels) or None,
        "project": new.project,
        "depends_on": list(new.depends_on) or None,
        "created_at": stamp(new.created_at),
        "not_before": maybe_stamp(new.not_before),
        "expires_at": maybe_stamp(new.expires_at),
        "max_attempts": new.max_attempts,
        "retry": None if new.retry is None else new.retry.to_json(),
        "correlation_id": new.correlation_id,
        "nonce": nonce,
        "written_at": stamp(written_at),
        "payload": orjson.Fragment(new.payload),
    }
    return dumps(fields)


def dumps(fields: dict[str, Any]) -> bytes:
    """A body, without the fields that are None."""
    return orjson.dumps(without_nulls(fields))


def without_nulls(fields: dict[str, Any]) -> dict[str, Any]:
    """Nobody tells what is null from what is not there."""
    return {key: value for key, value in fields.items() if value is not None}


def loads(body: bytes, what: str) -> dict[str, Any]:
    """A body that must be a JSON object."""
    try:
        value = orjson.loads(body)
    except ValueError as error:
        raise Damaged(f"{what} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise Damaged(f"{what} is no JSON object")
    return value


def own(value: Any) -> Any:
    """A JSON value that is nobody else's: what is remembered must not change."""
    return orjson.loads(orjson.dumps(value))


@dataclass(frozen=True)
class TaskFile:
    """A task.json as it was read (or written): its fields, and which version of it this is."""

    task_id: str
    place: str
    fields: dict[str, Any]
    etag: str
    modified: float

    @classmethod
    def read(cls, task_id: str, place: str, body: bytes, etag: str, modified: float) -> TaskFile:
        """Read a body; any JSON without a ``dfq`` key is a bare payload put there by a script."""
        try:
            value = orjson.loads(body)
        except ValueError as error:
            raise Damaged(f"task.json is not JSON: {error}") from None
        if not isinstance(value, dict) or "dfq" not in value:
            value = {"dfq": VERSION, "id": task_id, "correlation_id": task_id, "payload": value}
        version = value["dfq"]
        if isinstance(version, int) and version > VERSION:
            raise LeftAlone(
                f"task.json has version {version}, and this dfq knows {VERSION}; upgrade dfq here"
            )
        if value.get("id") != task_id:
            raise Damaged(f"task.json belongs to the task {value.get('id')!r}")
        if "payload" not in value:
            raise Damaged("task.json has no payload")
        # Kept encoded, so that nobody who changes what he was handed changes what is stored.
        value["payload"] = orjson.Fragment(_encoded(value["payload"]))
        made = cls(task_id, place, value, etag, modified)
        _ = made.checked, _encoded(value)
        return made

    @cached_property
    def checked(self) -> Task:
        """The envelope, without the payload and whatever the policy adds. Raises Damaged."""
        try:
            fields = self.fields
            count(fields, "fence", 0), etag(fields, "first_etag"), text(fields, "nonce")
            maybe_seconds(fields.get("written_at")), box(fields, "saved"), flag(fields, "requeued")
            return self._task(1, None)
        except (
            InvalidTask,
            InvalidPolicy,
            TypeError,
            ValueError,
            KeyError,
            AttributeError,
            OverflowError,
        ) as error:
            if isinstance(error, Damaged):
                raise
            raise Damaged(f"task.json: {error}") from None

    @property
    def first_etag(self) -> str:
        """The version that was pushed: it tells one task from another that had its id."""
        return str(self.fields.get("first_etag", self.etag))

    @property
    def fence(self) -> int:
        """The greatest fence that a settled lease had."""
        return self.fields.get("fence") or 0

    @property
    def saved(self) -> Any:
        """What a handler kept between attempts."""
        return self.fields.get("saved")

    @property
    def written_at(self) -> float | None:
        """When its writer sent it off, by the server's clock; None if nobody says."""
        return maybe_seconds(self.fields.get("written_at"))

    def task(self, policy: Policy) -> Task:
        """The task, with a payload that is nobody else's."""
        return self._task(policy.max_attempts, own(self.fields["payload"]))

    def _task(self, max_attempts: int, payload: Any) -> Task:
        fields = self.fields
        retry = fields.get("retry")
        created = fields.get("created_at")
        return Task(
            id=self.task_id,
            payload=payload,
            name=text(fields, "name"),
            priority=check_priority(fields.get("priority", NORMAL)),
            labels=tuple(texts(fields, "labels")),
            project=text(fields, "project"),
            depends_on=tuple(check_id(one) for one in texts(fields, "depends_on")),
            created_at=self.modified if created is None else seconds_of(created),
            not_before=maybe_seconds(fields.get("not_before")),
            expires_at=maybe_seconds(fields.get("expires_at")),
            max_attempts=count(fields, "max_attempts", max_attempts),
            retry=None if retry is None else RetryPolicy.from_json(retry),
            correlation_id=text(fields, "correlation_id") or self.task_id,
            attempts=count(fields, "attempts", 0),
            errors=tuple(map(_error_from, fields.get("errors") or ())),
        )

    def body(self, nonce: str, written_at: float, **changes: Any) -> bytes:
        """The next version of it, with these fields changed."""
        fields = {**self.fields, **changes, "nonce": nonce, "written_at": stamp(written_at)}
        return dumps(fields)

    def with_error(self, error: TaskError | None) -> list[dict[str, Any]] | None:
        """The history with one more entry, the oldest forgotten."""
        errors = list(self.fields.get("errors") or ())
        if error is not None:
            errors.append(error_fields(error))
        return errors[-MAX_ERRORS:] or None


def error_fields(error: TaskError) -> dict[str, Any]:
    """One entry of a history, as it stands in a body."""
    return {**asdict(error), "at": stamp(error.at)}


def _error_from(fields: Any) -> TaskError:
    if not isinstance(fields, dict):
        raise Damaged("an error is no JSON object")
    return TaskError(
        at=seconds_of(fields["at"]),
        attempt=count(fields, "attempt", 0),
        fence=count(fields, "fence", 0),
        worker_id=text(fields, "worker_id"),
        kind=cast(ErrorKind, _some(fields, "kind")),
        message=_some(fields, "message"),
    )


def _some(fields: dict[str, Any], key: str) -> str:
    value = text(fields, key)
    if value is None:
        raise Damaged(f"{key} is missing")
    return value


def _encoded(value: Any) -> bytes:
    """As JSON, also within a few objects more; what is nested deeper nobody could write again."""
    try:
        return orjson.dumps([[[[[[[[value]]]]]]]])[8:-8]
    except TypeError as error:
        raise Damaged(f"it can't be stored again: {error}") from None


@dataclass(frozen=True)
class LeaseFile:
    """A lease.json as it was read (or written)."""

    task_id: str
    place: str
    fields: dict[str, Any]
    etag: str
    modified: float
    #: Why it can't be read; then it is a lease of nobody known.
    damage: str = field(default="", compare=False)

    @classmethod
    def read(cls, task_id: str, place: str, body: bytes, etag: str, modified: float) -> LeaseFile:
        """Read a body. A damaged one is a lease too: it ends when its time is over."""
        try:
            fields = without_nulls(loads(body, "lease.json"))
            made = cls(task_id, place, fields, etag, modified)
            if made.too_new and not _is_usable(made):
                # Of what only a newer dfq can read, its version is all that counts.
                return cls(task_id, place, {"dfq": made.version}, etag, modified)
            return made.verified()
        except ValueError as error:
            return cls(task_id, place, {}, etag, modified, str(error))

    def verified(self) -> LeaseFile:
        """Itself, if all that is ever asked of it can be told; else raises Damaged."""
        fields = self.fields
        try:
            if fields.get("state", "leased") not in _STATES:
                raise Damaged(f"the state {fields['state']!r:.80} is unknown")
            for key in ("lease_id", "worker_id", "nonce", "session", "host", "task_id"):
                text(fields, key)
            for key in ("fence", "attempts", "pid"):
                count(fields, key, 0)
            for key in ("acquired_at", "heartbeat_at", "not_before", "finished_at"):
                maybe_seconds(fields.get(key))
            span(fields, "seconds", 1.0), span(fields, "aside", 0.0), box(fields, "saved")
            flag(fields, "held"), etag(fields, "task_etag"), etag(fields, "first_etag")
            if fields.get("task_id", self.task_id) != self.task_id:
                raise Damaged(f"lease.json belongs to the task {fields['task_id']!r:.80}")
            _ = self.error, _encoded(fields)
            if self.state == "completed":
                seconds_of(fields["finished_at"]), fields["task_id"], fields["task"]["payload"]
                _ = TaskFile(self.task_id, "", fields["task"], "", self.modified).checked
        except (TypeError, KeyError, AttributeError) as error:
            raise Damaged(f"lease.json: {error}") from None
        return self

    @property
    def version(self) -> int:
        """Which dfq wrote it; 0 if it says nothing."""
        version = self.fields.get("dfq", 0)
        return version if isinstance(version, int) else 0

    @property
    def too_new(self) -> bool:
        """Whether only a newer dfq knows what it means."""
        return self.version > VERSION

    @property
    def state(self) -> LeaseState:
        """How far it is."""
        return cast(LeaseState, self.fields.get("state", "leased"))

    @property
    def lease_id(self) -> str:
        """What tells this claim from all others."""
        return str(self.fields.get("lease_id", ""))

    @property
    def worker_id(self) -> str:
        """Who took it."""
        return str(self.fields.get("worker_id") or "unknown")

    @property
    def fence(self) -> int:
        """Grows with every lease on the task."""
        return self.fields.get("fence") or 0

    @property
    def nonce(self) -> str:
        """New with every write."""
        return str(self.fields.get("nonce", ""))

    @property
    def session(self) -> str | None:
        """Whose beat keeps it alive."""
        return self.fields.get("session")

    @property
    def error(self) -> TaskError | None:
        """What went wrong, if it ended so."""
        fields = self.fields.get("error")
        return None if fields is None else _error_from(fields)

    @property
    def ended_at(self) -> float:
        """When it ended; what does not say ended when it was written."""
        at = maybe_seconds(self.fields.get("finished_at"))
        return self.modified if at is None else at

    def seconds(self, policy: Policy) -> float:
        """How long it lives after it was written: by its holder, or by who wrote it aside."""
        return max(
            span(self.fields, "seconds", policy.lease_seconds), span(self.fields, "aside", 0.0)
        )

    def lease(self, task: Task, attempt: int, *, renewed: tuple[float, float] | None) -> Lease:
        """As the value that callers hold; ``renewed``: the last sign of life, and for how long."""
        fields = self.fields
        acquired = maybe_seconds(fields.get("acquired_at")) or self.modified
        signed = maybe_seconds(fields.get("heartbeat_at")) or acquired
        since, seconds = renewed or (signed, span(fields, "seconds", 0.0))
        return Lease(
            task=task,
            worker_id=self.worker_id,
            lease_id=self.lease_id,
            fence=self.fence,
            attempt=attempt,
            host=str(fields.get("host", "")),
            boot_id=str(fields.get("session", "")),
            pid=count(fields, "pid", 0),
            acquired_at=acquired,
            heartbeat_at=since,
            expires_at=since + seconds,
        )


def _is_usable(lease: LeaseFile) -> bool:
    try:
        lease.verified()
    except Damaged:
        return False
    return True
