"""Between the core's plain values and ours."""

from __future__ import annotations

import os
from typing import Any, TypeVar

import orjson

from dfq.errors import InvalidPolicy, LayoutTooNew, QueueUnavailable
from dfq.lease import Lease
from dfq.payload import decode
from dfq.policy import LAYOUT_VERSION, Policy, RetryPolicy
from dfq.record import Filter, Record
from dfq.task import NewTask, Task, TaskError

T = TypeVar("T")

#: Keys of queue.json that belong to the engine.
_LAYOUT_KEYS = ("dfq", "layout")


def policy_in(folder: str) -> Policy:
    """The policy in a folder's queue.json; the defaults where there is none."""
    path = f"{folder}/queue.json"
    try:
        # Not through a symlink, and never waiting for somebody to write to a FIFO.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            content = file.read(1 << 20) or b""
    except (FileNotFoundError, NotADirectoryError):
        return Policy()
    except OSError as error:
        raise QueueUnavailable(f"can't read {path}: {error.strerror}") from None
    try:
        settings = orjson.loads(content)
    except ValueError as error:
        raise InvalidPolicy(
            f"{path} is not JSON ({error}); mend it, or delete it for the defaults"
        ) from None
    if isinstance(settings, dict):
        version = settings.get("dfq")
        if isinstance(version, int) and version > LAYOUT_VERSION:
            raise LayoutTooNew(
                f"{folder} has layout {version}; this dfq knows layout {LAYOUT_VERSION} at most. "
                "Upgrade dfq"
            )
        # What is wrong with these the core says, in its own words.
        settings = {key: value for key, value in settings.items() if key not in _LAYOUT_KEYS}
    try:
        return Policy.from_json(settings)
    except InvalidPolicy as error:
        raise InvalidPolicy(f"{path}: {error}") from None


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1000)


def task_arguments(task: NewTask) -> dict[str, Any]:
    """A new task as the core takes it."""
    return {
        "id": task.id,
        "id_given": task.id_given,
        "payload": task.payload,
        "name": task.name,
        "priority": task.priority,
        "labels": task.labels,
        "project": task.project,
        "depends_on": task.depends_on,
        "created_at": int(task.created_at * 1000),
        "not_before": _ms(task.not_before),
        "expires_at": _ms(task.expires_at),
        "max_attempts": task.max_attempts,
        "retry": None if task.retry is None else orjson.dumps(task.retry.to_json()),
        "correlation_id": task.correlation_id,
    }


def filter_arguments(filter: Filter) -> tuple[Any, ...]:
    """A filter as the core takes it."""
    return (
        filter.project,
        list(filter.labels),
        filter.min_priority,
        filter.max_priority,
        None if filter.names is None else list(filter.names),
    )


def task_from(fields: dict[str, Any], policy: Policy, now: float) -> Task:
    """A task as the core tells it. Raises ValueError if its payload can't be read."""
    fields["payload"] = decode(fields["payload"])
    if fields["errors"]:
        fields["errors"] = tuple(TaskError(*error) for error in fields["errors"])
    if fields["max_attempts"] is None:
        fields["max_attempts"] = policy.max_attempts
    if fields["created_at"] is None:
        fields["created_at"] = now
    if fields["retry"] is not None:
        fields["retry"] = RetryPolicy.from_json(decode(fields["retry"]))
    return _frozen(Task, fields)


def lease_from(task: dict[str, Any], fields: dict[str, Any], policy: Policy, now: float) -> Lease:
    """A lease and its task, as the core tells them."""
    fields["task"] = task_from(task, policy, now)
    return _frozen(Lease, fields)


def record_from(found: dict[str, Any], policy: Policy, now: float) -> Record:
    """All about one task, as the core tells it."""
    lease = found["lease"]
    if lease is not None and found["state"] == "completed":
        # An ack writes nothing into task.json: of the last delivery only the lease tells.
        found["task"]["attempts"] = max(found["task"]["attempts"], lease["attempt"])
    task = task_from(found["task"], policy, now)
    if lease is not None:
        lease["task"] = task
    return Record(
        task=task,
        state=found["state"],
        lease=None if lease is None else _frozen(Lease, lease),
        result=_result(found["result"]),
        finished_at=found["finished_at"],
        blocked_by=found["blocked_by"],
    )


def _result(encoded: bytes | None) -> Any:
    try:
        return None if encoded is None else decode(encoded)
    except ValueError as error:
        raise ValueError(f"result.json: {error}") from None


_new = object.__new__
_set = object.__setattr__


def _frozen(cls: type[T], fields: dict[str, Any]) -> T:
    # A frozen dataclass sets its fields one by one through object.__setattr__, which is a third
    # of a claim's time in Python; the core's dict has exactly its fields already.
    made = _new(cls)
    _set(made, "__dict__", fields)
    return made
