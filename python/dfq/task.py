"""A task: an id, a JSON payload and its envelope."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from dfq.ambient import Chance, Clock, new_id
from dfq.errors import DependencyCycle, InvalidTask
from dfq.payload import JSON, encode
from dfq.policy import Policy, RetryPolicy, nearest

#: Priorities by name. Higher runs first; any whole number between ±32,767 will do.
PRIORITIES = {"low": 0, "normal": 50, "high": 100, "critical": 200}

MAX_ID_LENGTH = 200
_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", re.ASCII)
_WORD = re.compile(r"[^\x00-\x1f\x7f]{1,200}")
_CORRELATION = re.compile(r"[\x21-\x7e]{1,128}", re.ASCII)

ErrorKind = Literal["error", "crash", "timeout", "expired", "cancelled", "buried"]


@dataclass(frozen=True)
class TaskError:
    """One entry in a task's history: what went wrong at one delivery."""

    at: float
    attempt: int
    fence: int
    worker_id: str | None
    kind: ErrorKind
    message: str


@dataclass(frozen=True)
class Task:
    """One task as the queue holds it. Times are seconds since 1970."""

    id: str
    payload: JSON
    name: str | None
    priority: int
    labels: tuple[str, ...]
    project: str | None
    depends_on: tuple[str, ...]
    created_at: float
    not_before: float | None
    expires_at: float | None
    max_attempts: int
    retry: RetryPolicy | None
    correlation_id: str
    attempts: int
    errors: tuple[TaskError, ...]


@dataclass(frozen=True)
class NewTask:
    """A checked request to store a task: what :meth:`Queue.push_many` takes."""

    id: str
    #: False when dfq made the id: then nobody else can have it.
    id_given: bool
    payload: bytes
    name: str | None
    priority: int
    labels: tuple[str, ...]
    project: str | None
    depends_on: tuple[str, ...]
    created_at: float
    not_before: float | None
    expires_at: float | None
    max_attempts: int | None
    retry: RetryPolicy | None
    correlation_id: str


def make_task(
    payload: JSON,
    *,
    policy: Policy,
    clock: Clock,
    chance: Chance,
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
    """Check every option and return what an engine stores; the error names what is wrong."""
    now = clock.wall()
    task_id = check_id(id) if id is not None else new_id(clock, chance)
    dependencies = tuple(dict.fromkeys(check_id(d) for d in _words(depends_on, "depends_on")))
    if task_id in dependencies:
        raise DependencyCycle(f"task {task_id!r} depends on itself")
    if delay is not None and not_before is not None:
        raise InvalidTask("give delay or not_before, not both")
    ready_at = None if delay is None else now + _seconds(delay, "delay")
    if not_before is not None:
        ready_at = _timestamp(not_before, "not_before")
    if correlation_id is not None and not _CORRELATION.fullmatch(correlation_id):
        raise InvalidTask("correlation_id takes 1 to 128 printable ASCII characters, no spaces")
    return NewTask(
        id=task_id,
        id_given=id is not None,
        payload=encode(payload, limit=policy.max_payload_bytes),
        name=None if name is None else _word(name, "name"),
        priority=check_priority(priority),
        labels=tuple(dict.fromkeys(_word(x, "label") for x in _words(labels, "labels"))),
        project=None if project is None else _word(project, "project"),
        depends_on=dependencies,
        created_at=now,
        not_before=ready_at,
        expires_at=None if ttl is None else now + _seconds(ttl, "ttl"),
        max_attempts=None if max_attempts is None else _attempts(max_attempts),
        retry=retry,
        correlation_id=correlation_id or new_id(clock, chance),
    )


def check_id(value: object) -> str:
    """``value`` if it is a valid task id: it becomes a directory name and an S3 key."""
    if not isinstance(value, str):
        raise InvalidTask(f"a task id is a string, not {type(value).__name__}")
    if not value:
        raise InvalidTask("a task id can't be empty; leave it out to have one made")
    if len(value) > MAX_ID_LENGTH:
        raise InvalidTask(
            f"the task id {value[:40]!r}… has {len(value)} characters; {MAX_ID_LENGTH} at most"
        )
    if not _ID.fullmatch(value):
        raise InvalidTask(
            f"the task id {value!r} has characters that can't be in a file name everywhere; "
            "use letters, digits, '.', '_' and '-', not starting with '.'"
        )
    return value


def check_priority(value: object) -> int:
    """A priority by number or name."""
    if isinstance(value, str):
        if value.lower() in PRIORITIES:
            return PRIORITIES[value.lower()]
        if re.fullmatch(r"-?[0-9]{1,5}", value, re.ASCII):
            value = int(value)
        else:
            raise InvalidTask(
                f"priority {value!r} is unknown; {nearest(value.lower(), list(PRIORITIES))} "
                "(or a whole number)"
            )
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > 32_767:
        raise InvalidTask(f"priority {value!r} must be a whole number between -32767 and 32767")
    return value


def _words(values: Iterable[str], what: str) -> Iterable[str]:
    if isinstance(values, str):
        raise InvalidTask(f"{what} takes a list of strings, not one string")
    return values


def _word(value: object, what: str) -> str:
    if not isinstance(value, str) or not _WORD.fullmatch(value):
        raise InvalidTask(
            f"the {what} {str(value)[:40]!r} must be 1 to 200 characters without control characters"
        )
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidTask(f"the {what} {value!r} is not valid Unicode") from None
    return value


def _attempts(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value < 2**31:
        raise InvalidTask(f"max_attempts is {value!r}; it must be a whole number >= 1")
    return value


def _seconds(value: object, what: str) -> float:
    seconds: object = value.total_seconds() if isinstance(value, timedelta) else value
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not 0 <= seconds < 1e11:
        raise InvalidTask(f"{what} is {value!r}; it must be a number of seconds >= 0")
    return float(seconds)


def _timestamp(value: object, what: str) -> float:
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise InvalidTask(f"{what} has no time zone; use datetime.now(timezone.utc)")
        return value.timestamp()
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1e11:
        raise InvalidTask(f"{what} is {value!r}; it must be seconds since 1970 or a datetime")
    return float(value)
