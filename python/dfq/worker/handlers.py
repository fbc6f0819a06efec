"""Which function runs which task, and how handlers are found by name."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from inspect import iscoroutinefunction
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from dfq.errors import HandlerError, InvalidTask, Reject
from dfq.handler import Context, Handler, call_arguments, takes_context
from dfq.policy import nearest
from dfq.record import EVERYTHING, Filter
from dfq.task import Task
from dfq.worker.context import TaskContext


class Entry(Protocol):
    """One way to run a task."""

    @property
    def name(self) -> str:
        """What to call it in messages."""
        ...

    @property
    def is_async(self) -> bool:
        """Whether :meth:`invoke` only makes a coroutine."""
        ...

    @property
    def stoppable(self) -> bool:
        """Whether setting ``context.cancelled`` ends the work soon, whatever it does."""
        ...

    @property
    def timeout_seconds(self) -> float | None:
        """Its own time limit."""
        ...

    def invoke(self, context: TaskContext) -> Any:
        """Run the task; returns the result, or an awaitable of it."""
        ...


@dataclass(frozen=True)
class FunctionEntry:
    """A function: a decorated one gets the arguments of the call, a plain one the payload."""

    name: str
    function: Callable[..., Any]
    decorated: bool
    is_async: bool
    takes_context: bool
    timeout_seconds: float | None = None

    @property
    def stoppable(self) -> bool:
        """A coroutine can be cancelled; a thread can't."""
        return self.is_async

    def invoke(self, context: TaskContext) -> Any:
        """Call the function."""
        leading: tuple[Context, ...] = (context,) if self.takes_context else ()
        if not self.decorated:
            return self.function(*leading, context.task.payload)
        try:
            args, kwargs = call_arguments(context.task.payload)
        except InvalidTask as error:
            raise Reject(str(error)) from None
        return self.function(*leading, *args, **kwargs)


class HandlerSet:
    """All that a worker can run.

    Named entries take the tasks of their name. The default takes tasks without a name, those
    named like it, and those of names that were explicitly asked for; with ``any_name`` it
    takes all the rest.
    """

    def __init__(
        self, named: Iterable[Entry] = (), default: Entry | None = None, *, any_name: bool = False
    ) -> None:
        self._named: dict[str, Entry] = {}
        for entry in named:
            if entry.name in self._named:
                raise HandlerError(
                    f"two handlers are named {entry.name!r}; "
                    "give one of them another: @task(name=...)"
                )
            self._named[entry.name] = entry
        self._default = default
        self._any_name = any_name

    def __repr__(self) -> str:
        return f"<handlers {self.describe()}>"

    @property
    def has_coroutines(self) -> bool:
        """Whether any entry is a coroutine function."""
        return any(entry.is_async for entry in self._entries())

    @property
    def all_coroutines(self) -> bool:
        """Whether every entry is a coroutine function."""
        return all(entry.is_async for entry in self._entries())

    def describe(self) -> str:
        """The names, for a log line."""
        return ", ".join(sorted(entry.name for entry in self._entries()))

    def narrow(self, wanted: Filter) -> Filter:
        """``wanted`` without the tasks that nothing here could run."""
        if self._any_name and self._default is not None:
            # The very object, by which an engine knows that there is nothing to filter.
            return EVERYTHING if wanted == EVERYTHING else wanted
        if wanted.names is None:
            names = set(self._named)
            if self._default is not None:
                names |= {"", self._default.name}
        elif self._default is not None:
            names = set(wanted.names)
        else:
            names = set(wanted.names) & set(self._named)
        if not names:
            asked = ", ".join(wanted.names or ())
            raise HandlerError(
                f"no handler for tasks named {asked!r}; there is one for: {self.describe()}"
            )
        return replace(wanted, names=tuple(sorted(names)))

    def find(self, task: Task) -> Entry:
        """The entry that runs ``task``, which :meth:`narrow` let through."""
        entry = self._named.get(task.name or "", self._default)
        if entry is None:
            raise HandlerError(f"no handler is named {task.name!r}")
        return entry

    def _entries(self) -> list[Entry]:
        return [*self._named.values(), *([self._default] if self._default else [])]


def handler_set(*functions: Handler[..., Any] | Callable[..., Any]) -> HandlerSet:
    """Handlers and at most one plain function, as a set."""
    named: list[Entry] = []
    plain: list[Entry] = []
    for function in functions:
        entry = _entry(function)
        (named if entry.decorated else plain).append(entry)
    if len(plain) > 1:
        names = " and ".join(entry.name for entry in plain)
        raise HandlerError(
            f"{names} are plain functions, and only one can take the tasks without a name; "
            "decorate them with @dfq.task"
        )
    return HandlerSet(named, plain[0] if plain else None)


def load_handlers(*targets: str) -> HandlerSet:
    """The handlers named by ``pkg.mod:function`` or ``pkg.mod`` (its decorated functions)."""
    found: list[Handler[..., Any] | Callable[..., Any]] = []
    for target in targets:
        for function in _functions_of(target):
            if all(function is not other for other in found):
                found.append(function)
    return handler_set(*found)


def _entry(function: Handler[..., Any] | Callable[..., Any]) -> FunctionEntry:
    if isinstance(function, Handler):
        return FunctionEntry(
            name=function.name,
            function=function.function,
            decorated=True,
            is_async=function.is_async,
            takes_context=function.takes_context,
            timeout_seconds=function.timeout_seconds,
        )
    return FunctionEntry(
        name=getattr(function, "__name__", type(function).__name__),
        function=function,
        decorated=False,
        is_async=iscoroutinefunction(function),
        takes_context=takes_context(function),
    )


def _functions_of(target: str) -> list[Handler[..., Any] | Callable[..., Any]]:
    module_name, colon, path = target.partition(":")
    if not module_name or (colon and not path) or module_name.endswith(".py") or "/" in target:
        example = Path(module_name).stem or "tasks"
        raise HandlerError(
            f"the handler {target!r} is not a name Python can import; "
            f"write {example}:function or {example}, without path and .py"
        )
    module = _import(module_name, target)
    if not colon:
        handlers = [value for value in vars(module).values() if isinstance(value, Handler)]
        if not handlers:
            raise HandlerError(
                f"the module {module_name!r} has no decorated tasks; decorate a function with "
                f"@dfq.task, or name a plain one: {module_name}:function"
            )
        return list(handlers)
    return [_attribute(module, path, target)]


def _attribute(module: ModuleType, path: str, target: str) -> Callable[..., Any]:
    value: Any = module
    for part in path.split("."):
        if not hasattr(value, part):
            where = f"module {module.__name__!r}" if value is module else repr(value)
            known = [name for name in dir(value) if not name.startswith("_")]
            advice = nearest(part, known) if known else "it is empty"
            raise HandlerError(f"the handler {target!r}: {where} has no {part!r}; {advice}")
        value = getattr(value, part)
    if not callable(value):
        raise HandlerError(
            f"the handler {target!r} is {type(value).__name__}, not a function; name a function"
        )
    return value  # type: ignore[no-any-return]


def _import(module_name: str, target: str) -> ModuleType:
    here = os.getcwd()  # noqa: PTH109 -- sys.path holds strings, as python -m puts them there
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(module_name)
    except KeyboardInterrupt:
        raise
    except ModuleNotFoundError as error:
        if error.name and (module_name == error.name or module_name.startswith(error.name + ".")):
            raise HandlerError(
                f"the handler {target!r} can't be imported: there is no module {error.name!r} "
                f"in {here} or on PYTHONPATH; start the worker where it is, or install it"
            ) from None
        raise HandlerError(_import_failure(target, error)) from None
    except BaseException as error:
        raise HandlerError(_import_failure(target, error)) from None


def _import_failure(target: str, error: BaseException) -> str:
    """What the module raised, and the user's own line that did it."""
    said = "".join(traceback.format_exception_only(error)).strip()
    if isinstance(error, SystemExit):
        said = f"the module ends the program at import (SystemExit: {error.code})"
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename != __file__ and "importlib" not in frame.filename
    ]
    if isinstance(error, SyntaxError):
        return f"the handler {target!r} can't be imported: {_syntax_error(error)}"
    if not frames:
        return f"the handler {target!r} can't be imported: {said}"
    last = frames[-1]
    return (
        f"the handler {target!r} can't be imported: {said}\n"
        f"  {last.filename}, line {last.lineno}, in {last.name}\n    {last.line}"
    )


def _syntax_error(error: SyntaxError) -> str:
    """What is wrong first, then where, as Python shows it: file, line, caret."""
    lines = "".join(traceback.format_exception_only(error)).splitlines()
    where = [line for line in lines if line.startswith("  ")]
    said = [line for line in lines if not line.startswith("  ")]
    return "\n".join([*said[:1], *where, *said[1:]])
