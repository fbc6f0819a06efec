"""What this process did and asked of the store: told with its beats, so that telling is free.

A process that gives no signs of life, because it holds nothing, tells now and then all the same;
what that costs is at most a hundredth of what it tells.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from typing import Any, Final

import orjson

from dfq.ambient import Clock
from dfq.cost import KINDS, Usage
from dfq.engines.s3.bodies import Damaged, seconds_of, stamp
from dfq.store import RequestCounter

#: From so many untold requests on, one more is worth telling them.
TELL_REQUESTS: Final = 100

_DEEDS = ("pushed", "claimed", "completed")


class Tally:
    """The counts of one handle in this process. Safe from threads; a forked child has its own."""

    def __init__(self, requests: RequestCounter, clock: Clock) -> None:
        self._requests = requests
        self._clock = clock
        self._lock = threading.Lock()
        self._begin()

    def add(self, deed: str, count: int = 1) -> None:
        """So many tasks were pushed, claimed or completed; none: it was tried."""
        with self._lock:
            self._in_this_process()
            self._deeds[deed] += count

    def usage(self) -> Usage:
        """All so far."""
        now = self._clock.wall()
        with self._lock:
            self._in_this_process()
            ran = self._clock.boot() - self._began
            return Usage(now - ran, now, self._counted(), **{d: self._deeds[d] for d in _DEEDS})

    def fields(self) -> dict[str, Any]:
        """All so far, for the body of a beat."""
        usage = self.usage()
        with self._lock:
            self._told = sum(usage.requests.values())
        return {
            "since": stamp(usage.since),
            "until": stamp(usage.until),
            "requests": usage.requests,
            **{deed: getattr(usage, deed) for deed in _DEEDS},
        }

    def is_worth_telling(self) -> bool:
        """Whether enough was asked of the store since it was last told.

        Who only looked at the queue writes nothing.
        """
        with self._lock:
            self._in_this_process()
            return bool(self._deeds) and sum(self._counted().values()) - self._told >= TELL_REQUESTS

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._began = self._clock.boot()
        self._before = self._requests.snapshot()
        self._deeds: Counter[str] = Counter()
        self._told = 0

    def _in_this_process(self) -> None:
        if self._pid != os.getpid():
            self._begin()

    def _counted(self) -> dict[str, int]:
        return {k: count - self._before[k] for k, count in self._requests.snapshot().items()}


def told_usage(body: bytes) -> Usage | None:
    """What the body of a beat tells; None if it tells nothing, or is damaged."""
    try:
        fields = orjson.loads(body)
        requests = {kind: _count(fields["requests"].get(kind, 0)) for kind in KINDS}
        deeds = {deed: _count(fields.get(deed, 0)) for deed in _DEEDS}
        since, until = seconds_of(fields["since"]), seconds_of(fields["until"])
    except (ValueError, TypeError, KeyError, AttributeError, Damaged):
        return None
    return Usage(since, until, requests, **deeds)


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise Damaged(f"{value!r} is no count")
    return value
