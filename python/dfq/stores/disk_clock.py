"""The clock of a folder: the one that its file system stamps files with.

Machines that share a folder have clocks of their own, and the folder has one, its server's. It is
told from the time of a file just written, once in a while; in between this machine's clock since
boot runs on from there. Where the file system's clock is this machine's own, as on any local disk,
that one is read as it is, which is finer than what files are stamped with.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from dfq.ambient import Clock

#: So long a reading is good for.
KEEP_SECONDS: Final = 60.0
#: This machine's clock was set if it has moved so much more than the time since boot.
_JUMP_SECONDS: Final = 0.5
#: A kernel stamps files by a clock that ticks at least a hundred times a second.
_TICK_SECONDS: Final = 0.05


class DiskClock:
    """What the file system's clock says now: behind it by a little, never ahead.

    ``measure`` writes a file and gives its time. Where nothing can be written, it goes on from the
    last reading; without any, this machine's clock has to do.
    """

    def __init__(self, clock: Clock, measure: Callable[[], float]) -> None:
        self._clock = clock
        self._measure = measure
        self._lock = threading.Lock()
        self._measured_at: float | None = None
        #: This machine's clock less the time since boot, when it was measured.
        self._gap = 0.0
        #: The file system's clock less the time since boot; None: it is this machine's clock.
        self._offset: float | None = None

    def now(self) -> float:
        """Seconds since 1970."""
        with self._lock:
            boot, wall = self._clock.boot(), self._clock.wall()
            if self._is_stale(boot, wall):
                self._look()
                boot, wall = self._clock.boot(), self._clock.wall()
            return wall if self._offset is None else self._offset + boot

    def _is_stale(self, boot: float, wall: float) -> bool:
        if self._measured_at is None or boot - self._measured_at > KEEP_SECONDS:
            return True
        return abs(wall - boot - self._gap) > _JUMP_SECONDS

    def _look(self) -> None:
        first, before = self._measured_at is None, self._clock.wall()
        try:
            found: float | None = self._measure()
        except OSError:
            found = None
        boot, after = self._clock.boot(), self._clock.wall()
        if found is not None:
            is_ours = before - _TICK_SECONDS <= found <= after + _TICK_SECONDS
            self._offset = None if is_ours else found - boot
        elif not first and self._offset is None:
            # It was this machine's clock, which may have been set since: it goes on as it ran.
            self._offset = self._gap
        self._measured_at, self._gap = boot, after - boot
