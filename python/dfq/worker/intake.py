"""The intake: claims tasks, waits for them, sweeps, and bears with the queue's bad spells."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Literal

from dfq.errors import DfqError, QueueBusy, QueueUnavailable
from dfq.lease import Lease
from dfq.queue import PaidByRequest, Queue
from dfq.record import Filter, SweepReport
from dfq.worker.backoff import Backoff
from dfq.worker.draining import Remaining, estimate, remaining
from dfq.worker.folder import Folder
from dfq.worker.idleness import why_idle
from dfq.worker.logs import LOGGER
from dfq.worker.options import WorkerOptions
from dfq.worker.watchdog import Part

#: A draining worker looks this often whether others are done.
DRAIN_POLL_SECONDS = 1.0
#: A wait that ends sooner than this has not waited.
_AT_ONCE_SECONDS = 0.005
#: A sweep of a large queue may take so many times what anything else may.
_SWEEP_PATIENCE = 10.0
#: Where a count costs money and nothing seems to move, a draining worker counts all the same after
#: the time of so many sweeps.
_RECOUNT_SWEEPS = 4.0

#: Why no more tasks are claimed.
Ended = Literal["stopped", "drained", "enough", "empty", "failed"]
_WELL: tuple[Ended, ...] = ("drained", "enough", "empty")


class Intake:
    """Where a worker's tasks come from. Used by one thread at a time."""

    def __init__(
        self,
        queue: Queue,
        worker_id: str,
        wanted: Filter,
        options: WorkerOptions,
        *,
        on_poll: Callable[[], None],
        on_remaining: Callable[[Remaining], None],
        part: Part | None = None,
    ) -> None:
        self._queue = queue
        self._worker_id = worker_id
        self._wanted = wanted
        self._options = options
        self._on_poll = on_poll
        self._on_remaining = on_remaining
        self._part = part or Part("the search for work", queue.clock)
        self._budget = 1 if options.once else options.max_tasks
        self._folder = Folder(queue.url)
        self._stop = threading.Event()
        self._backoff = Backoff(queue.chance)
        self._deaf = Backoff(queue.chance, first_seconds=0.01, longest_seconds=1.0)
        self._swept = False
        self._sweep_at = queue.clock.boot()
        self._paid = queue if isinstance(queue, PaidByRequest) else None
        if self._paid is not None:
            # Work comes first. By chance, so that workers that live for minutes do their share.
            self._sweep_at += queue.chance.uniform(0.0, 1.0) * queue.sweep_seconds
        self._counted = False
        self._explained = False
        self._look_at = -math.inf
        # What was seen when this worker last counted what is left to do, and when.
        self._sight: int | None = None
        self._counted_at = -math.inf
        #: Why no more comes, once that is so.
        self.ended: Ended | None = None

    def stop(self) -> None:
        """Claim nothing more, and stop waiting."""
        self._stop.set()
        self._queue.interrupt()

    def take(self, limit: int) -> list[Lease]:
        """Up to ``limit`` tasks; none if none came within one wait."""
        if self._stop.is_set():
            self.ended = self.ended or "stopped"
            return []
        self._part.moves()
        try:
            leases = self._claim(limit)
            if not leases and self.ended is None:
                self._wait()
            self._well()
        except (QueueUnavailable, QueueBusy) as error:
            self._bear(error)
            return []
        except DfqError as error:
            self._fail(str(error))
            return []
        finally:
            self._part.rests()
        return leases

    def _claim(self, limit: int) -> list[Lease]:
        self._sweep_if_due()
        if self._options.drain and not self._counted:
            self._on_remaining(estimate(self._queue))
            self._counted = True
        self._part.moves()
        leases = self._take(limit)
        self._folder.remember()
        self._on_poll()
        if not leases and self._paid is not None and not self._swept:
            # Nothing is to be done: what was not swept for the sake of work is swept now.
            leases = self._take(limit) if self._sweep().expired_leases else []
        if not leases:
            self._explain()
            if self._options.once:
                self.ended = "empty"
            elif self._options.drain and (left := self._look()) is not None and not left.runnable:
                leases = self._take(limit)
                if not leases:
                    self._end_drained(left)
        return leases

    def _take(self, limit: int) -> list[Lease]:
        if self._budget is not None:
            limit = min(limit, self._budget)
        leases = self._queue.claim_many(
            limit,
            self._worker_id,
            lease_seconds=self._options.lease_seconds,
            filter=self._wanted,
        )
        if self._budget is not None:
            self._budget -= len(leases)
            if self._budget == 0:
                self.ended = "enough"
        return leases

    def _explain(self) -> None:
        if not self._explained:
            self._explained = True
            reason = why_idle(self._queue, self._wanted)
            if reason is not None:
                LOGGER.warning("%s", reason)

    def _look(self) -> Remaining | None:
        """How much is left to do; None if that was seen a moment ago, or nothing moved since."""
        clock = self._queue.clock
        began = clock.boot()
        if began < self._look_at:
            return None
        if self._paid is not None:
            sight, before = self._paid.sight(), self._sight
            recent = began - self._counted_at < _RECOUNT_SWEEPS * self._queue.sweep_seconds
            if recent and sight is not None and sight == before:
                return None
            self._sight, self._counted_at = sight, began
        left = remaining(self._queue, self._wanted)
        # A long look at a full queue comes less often, so that it stays a small part of the work.
        ended = clock.boot()
        self._look_at = ended + 4 * (ended - began)
        self._on_remaining(left)
        return left

    def _end_drained(self, left: Remaining) -> None:
        self.ended = "drained"
        if left.stuck:
            LOGGER.warning(
                "%d tasks wait for a dependency that failed or is unknown, and stay: %s%s; "
                "`dfq doctor` says more",
                len(left.stuck),
                ", ".join(left.stuck[:5]),
                " …" if len(left.stuck) > 5 else "",
            )

    def _wait(self) -> None:
        clock = self._queue.clock
        longest = self._queue.poll_seconds
        if self._options.drain and self._paid is None:
            until_look = self._look_at - clock.boot()
            longest = min(longest, until_look if until_look > 0 else DRAIN_POLL_SECONDS)
        began = clock.boot()
        self._part.moves(longest)
        woken = self._queue.wait(longest)
        # Tasks that are there but not for us, or a paused queue, may end every wait at once.
        if woken and clock.boot() - began < _AT_ONCE_SECONDS:
            self._stop.wait(min(longest, self._deaf.next_seconds()))
        else:
            self._deaf.reset()

    def end(self) -> None:
        """The work is done: sweep, if that did not come about before."""
        if self._paid is not None and not self._swept and self.ended in _WELL:
            try:
                self._sweep()
            except DfqError as error:
                LOGGER.warning("the queue %s was not swept: %s", self._queue.url, error)

    def _sweep_if_due(self) -> None:
        if self._queue.clock.boot() >= self._sweep_at:
            self._sweep()

    def _sweep(self) -> SweepReport:
        now = self._queue.clock.boot()
        self._swept = True
        # By chance, so that the workers of a queue don't sweep in step.
        self._sweep_at = now + self._queue.chance.uniform(0.75, 1.25) * self._queue.sweep_seconds
        self._part.moves(times=_SWEEP_PATIENCE)
        report = self._queue.sweep()
        if report.expired_leases or report.failed or report.quarantined:
            LOGGER.info(
                "swept: %d leases of dead workers ended, %d tasks failed for good, "
                "%d damaged files set aside",
                report.expired_leases,
                report.failed,
                report.quarantined,
            )
        return report

    def _bear(self, error: QueueUnavailable | QueueBusy) -> None:
        """Say it once, wait longer each time, and come back without help."""
        if self._folder.is_gone():
            self._fail(
                f"{error}. Its folder is gone, or another is in its place; the worker ends. "
                "Mend the path or the mount, then start it again"
            )
            return
        if self._options.once:
            self._fail(str(error))
            return
        if self._backoff.failures == 0:
            LOGGER.error("the queue %s fails, trying on: %s", self._queue.url, error)
        pause = self._backoff.next_seconds()
        self._part.moves(pause)
        self._stop.wait(pause)

    def _well(self) -> None:
        if self._backoff.failures:
            LOGGER.info("the queue %s is back", self._queue.url)
            self._backoff.reset()

    def _fail(self, message: str) -> None:
        LOGGER.error("the queue %s failed: %s", self._queue.url, message)
        self.ended = "failed"
