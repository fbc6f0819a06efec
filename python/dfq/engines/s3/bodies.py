"""What stands in a queue's objects: task.json and lease.json, to and from JSON.

task.json is that of the file engine. lease.json is the task's register: every change of hands is
one conditional write of it, and an outcome is committed there before anything else is touched.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Final, Literal, cast

import orjson

from dfq.engines.base import MAX_ERRORS
from dfq.errors import InvalidPolicy, InvalidTask
from dfq.lease import Lease
from dfq.policy import Policy, RetryPolicy
from dfq.task import PRIORITIES, ErrorKind, NewTask, Task, TaskError, check_id, check_priority

#: The version of the bodies this module writes.
VERSION: Final = 1

NORMAL: Final = PRIORITIES["normal"]

#: leased: somebody works on it. back: given back, or taken from the silent. failed, completed: the
#: end. free: nobody's, in stores that can't delete on a condition.
LeaseState = Literal["leased", "back", "failed", "completed", "free"]
_STATES = ("leased", "back", "failed", "completed", "free")


class Damaged(ValueError):
    """A body can't be used; the text says why."""


class LeftAlone(ValueError):
    """A body is not for this dfq to touch: a newer one wrote it, or it is larger than any of ours.

    The text says why, and what to do.
    """


def stamp(seconds: float) -> str:
    """A moment as it stands in a body."""
    moment = datetime.fromtimestamp(seconds, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def seconds_of(value: object) -> float:
    """The moment that :func:`stamp` wrote, or any ISO 8601 time, or seconds since 1970."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, str):
        raise Damaged(f"{value!r} is not a time")
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise Damaged(f"{value!r} is not a time") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _maybe_seconds(value: object) -> float | None:
    return None if value is None else seconds_of(value)


def _maybe_stamp(seconds: float | None) -> str | None:
    return None if seconds is None else stamp(seconds)


def new_task_body(new: NewTask, nonce: str) -> bytes:
    """task.json of a task that is pushed."""
    fields: dict[str, Any] = {
        "dfq": VERSION,
        "id": new.id,
        "name": new.name,
        "priority": new.priority,
        "labels": list(new.labels) or None,
        "project": new.project,
        "depends_on": list(new.depends_on) or None,
        "created_at": stamp(new.created_at),
        "not_before": _maybe_stamp(new.not_before),
        "expires_at": _maybe_stamp(new.expires_at),
        "max_attempts": new.max_attempts,
        "retry": None if new.retry is None else new.retry.to_json(),
        "correlation_id": new.correlation_id,
        "nonce": nonce,
        "written_at": stamp(new.created_at),
        "payload": orjson.Fragment(new.payload),
    }
    return dumps(fields)


def dumps(fields: dict[str, Any]) -> bytes:
    """A body, without the fields that are None."""
    return orjson.dumps({key: value for key, value in fields.items() if value is not None})


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
        value["payload"] = orjson.Fragment(orjson.dumps(value["payload"]))
        made = cls(task_id, place, value, etag, modified)
        _ = made.checked
        return made

    @cached_property
    def checked(self) -> Task:
        """The envelope, without the payload and whatever the policy adds. Raises Damaged."""
        try:
            return self._task(1, None)
        except (
            InvalidTask,
            InvalidPolicy,
            TypeError,
            ValueError,
            KeyError,
            OverflowError,
        ) as error:
            if isinstance(error, Damaged):
                raise
            raise Damaged(f"task.json: {error}") from None

    @property
    def fence(self) -> int:
        """The greatest fence that a settled lease had."""
        return int(self.fields.get("fence", 0))

    @property
    def saved(self) -> Any:
        """What a handler kept between attempts."""
        return self.fields.get("saved")

    @property
    def written_at(self) -> float | None:
        """When its writer sent it off, by the server's clock; None if nobody says."""
        return _maybe_seconds(self.fields.get("written_at"))

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
            name=_text(fields, "name"),
            priority=check_priority(fields.get("priority", NORMAL)),
            labels=tuple(_texts(fields, "labels")),
            project=_text(fields, "project"),
            depends_on=tuple(check_id(one) for one in _texts(fields, "depends_on")),
            created_at=self.modified if created is None else seconds_of(created),
            not_before=_maybe_seconds(fields.get("not_before")),
            expires_at=_maybe_seconds(fields.get("expires_at")),
            max_attempts=_count(fields, "max_attempts", max_attempts),
            retry=None if retry is None else RetryPolicy.from_json(retry),
            correlation_id=_text(fields, "correlation_id") or self.task_id,
            attempts=_count(fields, "attempts", 0),
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


def _text(fields: dict[str, Any], key: str) -> str | None:
    value = fields.get(key)
    if value is not None and not isinstance(value, str):
        raise Damaged(f"{key} is no text")
    return value


def _texts(fields: dict[str, Any], key: str) -> list[str]:
    values = fields.get(key) or []
    if not isinstance(values, list) or not all(isinstance(one, str) for one in values):
        raise Damaged(f"{key} is no list of texts")
    return values


def _count(fields: dict[str, Any], key: str, default: int) -> int:
    value = fields.get(key)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise Damaged(f"{key} is no count")
    return value


def error_fields(error: TaskError) -> dict[str, Any]:
    """One entry of a history, as it stands in a body."""
    return {**asdict(error), "at": stamp(error.at)}


def _error_from(fields: Any) -> TaskError:
    return TaskError(
        at=seconds_of(fields["at"]),
        attempt=int(fields["attempt"]),
        fence=int(fields["fence"]),
        worker_id=fields.get("worker_id"),
        kind=cast(ErrorKind, fields["kind"]),
        message=str(fields["message"]),
    )


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
            fields = loads(body, "lease.json")
            return cls._checked(task_id, place, fields, etag, modified)
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            damage = str(error) or "lease.json can't be read"
            return cls(task_id, place, {}, etag, modified, damage)

    @classmethod
    def _checked(
        cls, task_id: str, place: str, fields: dict[str, Any], etag: str, modified: float
    ) -> LeaseFile:
        made = cls(task_id, place, fields, etag, modified)
        if made.version <= VERSION:
            if fields.get("state", "leased") not in _STATES:
                raise Damaged(f"the state {fields['state']!r} is unknown")
            int(fields.get("fence", 0)), float(fields.get("seconds", 1))
            float(fields.get("aside", 0.0))
            if made.state in ("completed", "failed", "back"):
                _error = fields.get("error")
                if _error is not None:
                    _error_from(_error)
            if made.state == "completed":
                seconds_of(fields["finished_at"]), fields["task"]["payload"]
        return made

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
        return int(self.fields.get("fence", 0))

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

    def seconds(self, policy: Policy) -> float:
        """How long it lives after it was written: by its holder, or by who wrote it aside."""
        seconds = float(self.fields.get("seconds", policy.lease_seconds))
        return max(seconds, float(self.fields.get("aside", 0.0)))

    def lease(self, task: Task, attempt: int, *, renewed: tuple[float, float] | None) -> Lease:
        """As the value that callers hold; ``renewed``: the last sign of life, and for how long."""
        fields = self.fields
        acquired = _or(fields.get("acquired_at"), self.modified)
        seconds = float(fields.get("seconds", 0.0))
        since, seconds = renewed or (_or(fields.get("heartbeat_at"), acquired), seconds)
        return Lease(
            task=task,
            worker_id=self.worker_id,
            lease_id=self.lease_id,
            fence=self.fence,
            attempt=attempt,
            host=str(fields.get("host", "")),
            boot_id=str(fields.get("session", "")),
            pid=int(fields.get("pid", 0)),
            acquired_at=acquired,
            heartbeat_at=since,
            expires_at=since + seconds,
        )


def _or(value: object, default: float) -> float:
    return default if value is None else seconds_of(value)
