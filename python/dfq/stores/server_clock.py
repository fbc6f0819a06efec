"""The server's clock, told from the Date of its answers and our own clock's running since."""

from __future__ import annotations

import calendar
import threading
from functools import lru_cache

from dfq.ambient import Clock

#: So long a better reading is kept: dates are in whole seconds, and answers may be slow.
_KEEP_SECONDS = 60.0

_MONTHS = {
    name: number
    for number, name in enumerate(
        ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"), 1
    )
}


class ServerClock:
    """What the server's clock says now: a little behind it, never ahead.

    A date was true before its answer arrived, so each one gives a time that the server has
    certainly reached; of those of the last minute the latest counts. Only the running of our own
    clock matters, not what it shows.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._offset: float | None = None
        self._seen_at = 0.0

    def saw(self, date: float) -> None:
        """An answer with this date has just arrived."""
        boot = self._clock.boot()
        offset = date - boot
        with self._lock:
            stale = boot - self._seen_at > _KEEP_SECONDS
            if self._offset is None or stale or offset >= self._offset:
                self._offset = offset
                self._seen_at = boot

    def now(self) -> float | None:
        """Seconds since 1970, or None if no date was seen."""
        with self._lock:
            return None if self._offset is None else self._offset + self._clock.boot()

    def ahead_of(self, wall: float) -> float:
        """How far the server is ahead of this clock, in seconds; 0 if nobody knows."""
        now = self.now()
        return 0.0 if now is None else now - wall


@lru_cache(maxsize=256)
def seconds_of(date: str) -> float | None:
    """Seconds since 1970 of an HTTP date such as ``Wed, 18 Nov 2026 09:03:00 GMT``; else None."""
    parts = date.split()
    try:
        _, day, month, year, time, zone = parts
        hour, minute, second = (int(part) for part in time.split(":"))
        if zone != "GMT":
            return None
        moment = (int(year), _MONTHS[month], int(day), hour, minute, second)
        return float(calendar.timegm(moment))
    except (ValueError, KeyError):
        return None
