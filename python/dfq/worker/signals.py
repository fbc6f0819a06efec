"""SIGTERM and SIGINT as messages, while a worker runs."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

STOPPING = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """Hands every SIGTERM and SIGINT to ``receive``; outside the main thread it does nothing."""

    def __init__(self, receive: Callable[[int], None]) -> None:
        self._receive = receive
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            for number in STOPPING:
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *exc: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        self._receive(number)
