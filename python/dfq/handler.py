"""Functions as tasks: a handler runs a task, and pushes calls of itself as tasks.

A decorated function stays callable. ``handler.push(1, unit="m")`` stores the call as the
payload ``{"args": [1], "kwargs": {"unit": "m"}}`` under the handler's name; a worker that
has the handler makes the call.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import (
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Protocol,
    TypedDict,
    TypeVar,
    Unpack,
    cast,
    overload,
)

from dfq.errors import HandlerError, InvalidTask
from dfq.lease import Lease
from dfq.payload import JSON
from dfq.policy import RetryPolicy
from dfq.task import NewTask, Task

P = ParamSpec("P")
R = TypeVar("R")
P2 = ParamSpec("P2")
R2 = TypeVar("R2")


class PushOptions(TypedDict, total=False):
    """What may be said about a task besides its payload and its name."""

    id: str | None
    priority: int | str
    labels: Iterable[str]
    project: str | None
    depends_on: Iterable[str]
    delay: float | timedelta | None
    not_before: float | datetime | None
    ttl: float | timedelta | None
    max_attempts: int | None
    retry: RetryPolicy | None
    correlation_id: str | None


class HandlerOptions(TypedDict, total=False):
    """What a decorator may say about every task of a handler."""

    priority: int | str
    labels: Iterable[str]
    project: str | None
    max_attempts: int | None
    retry: RetryPolicy | None
    ttl: float | timedelta | None


class Pusher(Protocol):
    """The part of a queue that a handler needs to push calls of itself."""

    def push(
        self, payload: JSON, *, name: str | None = None, **options: Unpack[PushOptions]
    ) -> Task:
        """Store a task."""
        ...

    def new_task(
        self, payload: JSON, *, name: str | None = None, **options: Unpack[PushOptions]
    ) -> NewTask:
        """Check a task, for ``push_many``."""
        ...


class Cancelled(Protocol):
    """Set when the work is no longer wanted: the lease is lost, or the time is up."""

    def is_set(self) -> bool:
        """Whether to stop."""
        ...

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, at most so long; a sleep that ends when the work should."""
        ...


class Context(Protocol):
    """What a handler can know and say about the task it is working on.

    A function gets one if its first parameter is annotated ``Context`` or is called ``ctx``
    or ``context``.
    """

    @property
    def task(self) -> Task:
        """The task."""
        ...

    @property
    def lease(self) -> Lease:
        """The lease it is worked on under, as it was last renewed."""
        ...

    @property
    def fence(self) -> int:
        """Grows with every delivery: hand it to outside systems that can refuse a smaller one."""
        ...

    @property
    def attempt(self) -> int:
        """Which delivery this is, from 1."""
        ...

    @property
    def cancelled(self) -> Cancelled:
        """Set when to stop; look at it in long loops."""
        ...

    @property
    def log(self) -> Any:
        """A :class:`logging.LoggerAdapter` that names the task in every line."""
        ...

    def progress(self, fraction: float, note: str = "") -> None:
        """Say how far the work is, from 0 to 1."""
        ...

    def heartbeat(self) -> None:
        """Renew the lease now; raises LeaseLost if it is no longer ours."""
        ...

    def load_state(self) -> JSON:
        """What an earlier attempt saved, or None."""
        ...

    def save_state(self, state: JSON) -> None:
        """Keep a JSON value for the next attempt."""
        ...


class Handler(Generic[P, R]):
    """A function with a name under which its calls can be pushed as tasks."""

    def __init__(
        self,
        function: Callable[..., R],
        *,
        name: str | None = None,
        queue: Pusher | None = None,
        timeout_seconds: float | None = None,
        defaults: HandlerOptions | None = None,
    ) -> None:
        if not callable(function):
            raise HandlerError(
                f"@task decorates a function, not {type(function).__name__}; "
                "options are given by name, as in @task(name='enrich')"
            )
        if timeout_seconds is not None and not timeout_seconds > 0:
            raise HandlerError(f"timeout_seconds is {timeout_seconds!r}; it must be above 0")
        functools.update_wrapper(self, function)
        self.function = function
        self.name = name or str(getattr(function, "__name__", "")) or type(function).__name__
        self.queue = queue
        self.timeout_seconds = timeout_seconds
        self.defaults: Mapping[str, Any] = dict(defaults or {})

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function here and now; no task is made."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<handler {self.name!r}>"

    @functools.cached_property
    def is_async(self) -> bool:
        """Whether the function is a coroutine function."""
        import inspect

        return inspect.iscoroutinefunction(self.function)

    @functools.cached_property
    def takes_context(self) -> bool:
        """Whether the function's first parameter is a :class:`Context`."""
        return takes_context(self.function)

    def bind(self, queue: Pusher) -> Handler[P, R]:
        """The same handler, pushing to ``queue``."""
        return Handler(
            self.function,
            name=self.name,
            queue=queue,
            timeout_seconds=self.timeout_seconds,
            defaults=cast(HandlerOptions, self.defaults),
        )

    def options(self, **options: Unpack[PushOptions]) -> Call[P]:
        """A call with these options: ``handler.options(delay=60).push(1)``."""
        return Call(self.name, self.queue, {**self.defaults, **options})

    def push(self, *args: P.args, **kwargs: P.kwargs) -> Task:
        """Store a call of this function as a task."""
        return Call[P](self.name, self.queue, self.defaults).push(*args, **kwargs)

    def new_task(self, *args: P.args, **kwargs: P.kwargs) -> NewTask:
        """A checked call of this function, for ``queue.push_many``."""
        return Call[P](self.name, self.queue, self.defaults).new_task(*args, **kwargs)


class Call(Generic[P]):
    """A call of a handler that is about to be pushed, with its options."""

    def __init__(self, name: str, queue: Pusher | None, options: Mapping[str, Any]) -> None:
        self._name = name
        self._queue = queue
        self._options = options

    def push(self, *args: P.args, **kwargs: P.kwargs) -> Task:
        """Store the call as a task."""
        return self._bound().push(
            call_payload(args, kwargs), name=self._name, **cast(PushOptions, self._options)
        )

    def new_task(self, *args: P.args, **kwargs: P.kwargs) -> NewTask:
        """The checked call, for ``queue.push_many``."""
        return self._bound().new_task(
            call_payload(args, kwargs), name=self._name, **cast(PushOptions, self._options)
        )

    def _bound(self) -> Pusher:
        if self._queue is None:
            raise HandlerError(
                f"handler {self._name!r} belongs to no queue, so it can't push; "
                f"use {self._name}.bind(queue).push(...), or decorate it with @queue.task"
            )
        return self._queue


def call_payload(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> JSON:
    """A call as a payload."""
    return {"args": list(args), "kwargs": dict(kwargs)}


def call_arguments(payload: JSON) -> tuple[list[Any], dict[str, Any]]:
    """The call that :func:`call_payload` made; an error if the payload is no call."""
    if (
        isinstance(payload, dict)
        and payload.keys() <= {"args", "kwargs"}
        and isinstance(args := payload.get("args", []), list)
        and isinstance(kwargs := payload.get("kwargs", {}), dict)
    ):
        return args, kwargs
    raise InvalidTask(
        "the payload is no call of a decorated handler; "
        'it must be {"args": [...], "kwargs": {...}}, as handler.push() makes it'
    )


def takes_context(function: Callable[..., object]) -> bool:
    """Whether the first parameter is annotated Context, or called ctx or context."""
    import inspect

    try:
        parameters = iter(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return False
    first = next(parameters, None)
    if first is None or first.kind not in (first.POSITIONAL_ONLY, first.POSITIONAL_OR_KEYWORD):
        return False
    annotation = first.annotation
    if isinstance(annotation, str):
        named = annotation.strip("'\"").rpartition(".")[2]
    else:
        named = getattr(annotation, "__name__", "")
    return named == Context.__name__ or first.name in ("ctx", "context")


class TaskDecorator:
    """``@queue.task``, plain or with options: ``@queue.task(name="enrich", priority="high")``."""

    def __init__(self, queue: Pusher | None) -> None:
        self._queue = queue

    @overload
    def __call__(self, function: Callable[Concatenate[Context, P2], R2], /) -> Handler[P2, R2]: ...

    @overload
    def __call__(self, function: Callable[P2, R2], /) -> Handler[P2, R2]: ...

    @overload
    def __call__(
        self,
        *,
        name: str | None = None,
        timeout_seconds: float | None = None,
        **defaults: Unpack[HandlerOptions],
    ) -> ConfiguredDecorator: ...

    def __call__(self, *function: Callable[..., Any], **options: Any) -> Any:
        """Make a function a handler, or return a decorator with these options."""
        decorate = ConfiguredDecorator(
            self._queue, options.pop("name", None), options.pop("timeout_seconds", None), options
        )
        return decorate(*function) if function else decorate


class ConfiguredDecorator:
    """What ``@queue.task(...)`` decorates with."""

    def __init__(
        self,
        queue: Pusher | None,
        name: str | None,
        timeout_seconds: float | None,
        defaults: Mapping[str, Any],
    ) -> None:
        unknown = set(defaults) - set(HandlerOptions.__annotations__)
        if unknown:
            from dfq.policy import nearest

            key = min(unknown)
            known = [*HandlerOptions.__annotations__, "name", "timeout_seconds"]
            raise HandlerError(f"@task has no option {key!r}; {nearest(key, known)}")
        self._queue = queue
        self._name = name
        self._timeout_seconds = timeout_seconds
        self._defaults = defaults

    @overload
    def __call__(self, function: Callable[Concatenate[Context, P2], R2], /) -> Handler[P2, R2]: ...

    @overload
    def __call__(self, function: Callable[P2, R2], /) -> Handler[P2, R2]: ...

    def __call__(self, function: Callable[..., Any], /) -> Handler[..., Any]:
        """Make ``function`` a handler."""
        return Handler(
            function,
            name=self._name,
            queue=self._queue,
            timeout_seconds=self._timeout_seconds,
            defaults=cast(HandlerOptions, self._defaults),
        )


#: ``@dfq.task``: a handler that belongs to no queue yet; a worker can run it as it is.
task = TaskDecorator(None)
