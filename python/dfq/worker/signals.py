"""SIGTERM and SIGINT as messages, while a worker runs."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

STOPPING = (signal.SIGTERM, signal.SIGINT)

_END = b"\0"
_JOIN_SECONDS = 1.0


class StopSignals:
    """Hands every SIGTERM and SIGINT to ``receive``; outside the main thread it does nothing.

    Python calls a handler between two instructions of the main thread, so a signal that comes
    just as that thread begins to wait, or that the system gives to another thread, would be
    heard only when the wait is over. So a thread of its own hears of every signal through a
    pipe, and calls ``wake``, which has to end the main thread's wait.
    """

    def __init__(self, receive: Callable[[int], None], wake: Callable[[], None]) -> None:
        self._receive = receive
        self._wake = wake
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            self._read_end, self._write_end = os.pipe()
            os.set_blocking(self._write_end, False)
            self._wakeup_before = signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
            for number in STOPPING:
                self._before[number] = signal.signal(number, self._handle)
            self._thread = threading.Thread(target=self._listen, name="dfq-signals", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if not self._before:
            return
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup_before)
        # Said, not only closed: a process that a handler forked may hold the pipe open.
        with contextlib.suppress(BlockingIOError):
            os.write(self._write_end, _END)
        self._thread.join(_JOIN_SECONDS)
        os.close(self._write_end)
        if not self._thread.is_alive():
            os.close(self._read_end)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        self._receive(number)

    def _listen(self) -> None:
        while (heard := os.read(self._read_end, 64)) and _END not in heard:
            self._wake()
