"""Which dependencies are met, for tasks that wait for others.

A task whose dependency failed, or was never pushed, may wait for ever, and every look comes across
it. So what was found wanting is remembered, and asked for again only when something was seen that
may have changed it: its lease without its task (which is how a completion looks for its first two
minutes), or that it no longer waits itself. In case that was missed, all are looked up together,
with one listing, every quarter of an hour.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dfq.engines.s3.bucket import Bucket
from dfq.engines.s3.finished import Finished
from dfq.engines.s3.keys import home
from dfq.engines.s3.looking import Looking
from dfq.engines.s3.view import View

#: All that is missing is looked up so often, whatever was seen.
RECHECK_SECONDS: Final = 900.0
#: In a queue that is larger than a page the lease of each is read, with pauses from this on.
_FIRST_SECONDS: Final = 2.0
_REMEMBERED: Final = 10_000


@dataclass
class _Missing:
    """A dependency that was not completed when it was last asked for."""

    #: The lease that was seen of it then.
    ended: str | None
    #: When its lease may be read again, where a look does not show it.
    again_at: float
    pause: float = _FIRST_SECONDS
    #: It was seen to wait since.
    waited: bool = False


class Dependencies:
    """What one handle knows of them. Safe from threads."""

    def __init__(self, bucket: Bucket, looking: Looking, finished: Finished, view: View) -> None:
        self._bucket = bucket
        self._looking = looking
        self._finished = finished
        self._view = view
        self._lock = threading.Lock()
        self._missing: dict[str, _Missing] = {}
        self._recheck_at = 0.0

    def surely_wait(self, task_ids: Sequence[str]) -> bool:
        """Whether one is not completed, as far as is known without a request."""
        return any(self._is_missing(one) for one in task_ids)

    def are_met(self, task_ids: Sequence[str]) -> bool:
        """Whether all are completed."""
        return not self.surely_wait(task_ids) and all(map(self._is_met, task_ids))

    def completed(self, task_id: str) -> None:
        """A task was completed here."""
        with self._lock:
            self._missing.pop(task_id, None)

    def _is_missing(self, task_id: str) -> bool:
        waits, ended = self._view.waits(task_id), self._view.ended(task_id)
        with self._lock:
            missing = self._missing.get(task_id)
            if missing is None:
                return waits
            missing.waited = missing.waited or waits
            if waits:
                return True
            now = self._bucket.clock.boot()
            if now >= self._recheck_at or self._has_moved(missing, ended):
                return False
            return self._view.is_whole or now < missing.again_at

    def _has_moved(self, missing: _Missing, ended: str | None) -> bool:
        if ended is not None and ended != missing.ended:
            return True
        return missing.waited and self._view.is_whole

    def _is_met(self, task_id: str) -> bool:
        ended = self._view.ended(task_id)
        with self._lock:
            missing = self._missing.get(task_id)
            asks = missing is None or self._has_moved(missing, ended)
        if missing is None or asks:
            if self._looking.is_completed(task_id):
                self.completed(task_id)
                return True
            self._note(task_id, _Missing(ended, 0.0))
            return False
        if self._bucket.clock.boot() >= self._recheck_at:
            self._look_all_up()
            with self._lock:
                if task_id not in self._missing:
                    return True
        if self._view.is_whole:
            return False
        lease = self._bucket.read_lease(task_id, home(task_id))
        if lease is not None and lease.state == "completed":
            self.completed(task_id)
            return True
        self._note(task_id, _Missing(ended, 0.0, min(2 * missing.pause, RECHECK_SECONDS)))
        return False

    def _note(self, task_id: str, missing: _Missing) -> None:
        now = self._bucket.clock.boot()
        missing.again_at = now + missing.pause * self._bucket.chance.uniform(0.75, 1.25)
        with self._lock:
            if len(self._missing) >= _REMEMBERED:
                self._missing.clear()
            if not self._missing:
                self._recheck_at = self._next_recheck()
            self._missing[task_id] = missing

    def _look_all_up(self) -> None:
        """See which of all that is missing was completed meanwhile."""
        with self._lock:
            wanted = sorted(self._missing)
        completed = self._finished.known(wanted)
        with self._lock:
            self._recheck_at = self._next_recheck()
            for task_id in completed:
                self._missing.pop(task_id, None)

    def _next_recheck(self) -> float:
        pause = RECHECK_SECONDS * self._bucket.chance.uniform(0.75, 1.25)
        return self._bucket.clock.boot() + pause
