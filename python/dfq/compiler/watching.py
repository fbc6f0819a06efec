"""Compiling for ever: pass after pass, more and more patient while there is nothing to do."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from dfq.compiler.passes import Pass
from dfq.compiler.reports import CompileReport
from dfq.errors import QueueBusy, QueueUnavailable

FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 60.0


@dataclass
class Watch:
    """A daemon over one index. ``on_pass`` hears of every pass, ``on_error`` of bad spells."""

    one: Pass
    on_pass: Callable[[CompileReport], None]
    on_error: Callable[[Exception], None]
    first_pause_seconds: float = FIRST_PAUSE_SECONDS
    longest_pause_seconds: float = LONGEST_PAUSE_SECONDS
    #: Waits; a test hands in its own.
    wait: Callable[[threading.Event, float], object] = lambda stop, seconds: stop.wait(seconds)

    def run(self) -> None:
        """Until the pass's ``stop`` is set."""
        stop, idle = self.one.stop, 0
        while not stop.is_set():
            try:
                report = self.one.run()
            except (QueueUnavailable, QueueBusy) as error:
                self.on_error(error)
                idle += 1
            else:
                self.on_pass(report)
                idle = 0 if report.files else idle + 1
            if idle:
                self.wait(stop, self.pause_seconds(idle))

    def pause_seconds(self, idle: int) -> float:
        """A random part of a time that doubles with every turn that had nothing to do."""
        longest = min(self.longest_pause_seconds, self.first_pause_seconds * 2 ** min(idle - 1, 30))
        return self.one.site.chance.uniform(longest / 2, longest)
