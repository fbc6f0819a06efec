"""Opening a worker's queue while its store can't be reached: waiting for it, and being stopped."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from dfq.ambient import SYSTEM_CHANCE, Chance
from dfq.errors import QueueBusy, QueueUnavailable, StoreNotSafe, StoreRefused
from dfq.queue import Queue
from dfq.worker.backoff import Backoff
from dfq.worker.logs import LOGGER, configure
from dfq.worker.notify import NOTIFY_VARIABLE, Notifier, status, take_notifier
from dfq.worker.signals import STOPPING

#: A service manager that waits for us is asked to go on for so long: a try takes no longer.
_LONGEST_SECONDS = 300


class _Stopped(BaseException):
    """A signal came: nothing is under way that has to be brought to an end."""


def open_patiently(
    open_queue: Callable[[], Queue],
    *,
    log_json: bool = False,
    chance: Chance = SYSTEM_CHANCE,
    pause: Callable[[float], object] | None = None,
) -> Queue | None:
    """The queue, however long that takes; None if a signal came before it was open.

    What waiting does not mend (credentials, a bucket that is not there) is raised at once.
    """
    configure(as_json=log_json)
    # Nobody sets it: a signal ends the wait.
    pause = pause or threading.Event().wait
    backoff = Backoff(chance)
    try:
        with _ended_by_signals():
            while True:
                try:
                    queue = open_queue()
                except (StoreRefused, StoreNotSafe):
                    raise
                except (QueueUnavailable, QueueBusy) as error:
                    if not backoff.failures:
                        LOGGER.error("the queue can't be opened, trying on: %s", error)
                        manager = _manager()
                    manager.tell(
                        status(f"waits for the queue: {error}"),
                        f"EXTEND_TIMEOUT_USEC={_LONGEST_SECONDS * 1_000_000}",
                    )
                    pause(backoff.next_seconds())
                    continue
                if backoff.failures:
                    LOGGER.info("the queue %s can be opened now", queue.url)
                return queue
    except _Stopped:
        LOGGER.info("stopped before the queue could be opened")
        return None


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Within, a signal that ends workers raises; outside the main thread none is heard."""

    def stop(_number: int, _frame: FrameType | None) -> NoReturn:
        raise _Stopped

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, stop) for number in STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _manager() -> Notifier:
    """The service manager, if there is one. The worker itself finds its address later."""
    return Notifier() if NOTIFY_VARIABLE in os.environ else take_notifier(dict(os.environ))
