"""Coroutines: an event loop in a thread of its own, started when the first one comes."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from dfq.worker.context import TaskContext

#: The result, and what was raised.
Ended = tuple[Any, BaseException | None]
#: Told the result, or what was raised.
Done = Callable[[Any, BaseException | None], None]


class Coroutines:
    """Runs awaitables, and cancels those whose context is cancelled."""

    def __init__(self, *, fast: bool) -> None:
        self._loop = _new_loop(fast)
        self._tasks: set[asyncio.Task[Ended]] = set()
        self._thread = threading.Thread(target=self._run, name="dfq-asyncio", daemon=True)
        self._thread.start()

    def start(self, awaitable: Awaitable[Any], context: TaskContext, done: Done) -> None:
        """Run ``awaitable`` and call ``done``, in the loop's thread, with what came of it."""
        self._loop.call_soon_threadsafe(self._start, awaitable, context, done)

    def stop(self, timeout: float) -> None:
        """End the loop; wait for its thread at most so long, for a coroutine may block it."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        for task in self._tasks:
            task.cancel()
        # A coroutine that ignores its cancellation keeps this daemon thread, and nothing else.
        if self._tasks:
            self._loop.run_until_complete(asyncio.wait(self._tasks))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def _start(self, awaitable: Awaitable[Any], context: TaskContext, done: Done) -> None:
        task = self._loop.create_task(_guarded(awaitable))
        self._tasks.add(task)

        def ended(task: asyncio.Task[Ended]) -> None:
            self._tasks.discard(task)
            if task.cancelled():  # before its first step, so the guard never ran
                if isinstance(awaitable, Coroutine):
                    awaitable.close()
                done(None, asyncio.CancelledError())
            else:
                done(*task.result())

        task.add_done_callback(ended)
        if context.cancelled.is_set():
            task.cancel()  # here and now, so that it takes no first step
        else:
            context.cancelled.when_set(lambda: self._cancel(task))

    def _cancel(self, task: asyncio.Task[Ended]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: then the task has ended
            self._loop.call_soon_threadsafe(task.cancel)


async def _guarded(awaitable: Awaitable[Any]) -> Ended:
    # SystemExit and KeyboardInterrupt would end the loop if they got out of a task.
    try:
        return await awaitable, None
    except BaseException as error:
        return None, error


def _new_loop(fast: bool) -> asyncio.AbstractEventLoop:
    if fast:
        try:
            import uvloop
        except ImportError:
            pass
        else:
            return uvloop.new_event_loop()
    return asyncio.new_event_loop()
