"""The worker: takes tasks, runs them, and ends as it was told to.

Threads: the caller's (signals, time limits, the end), one that beats, and those of the pool,
which claim, run handlers and write outcomes. Nothing wakes an idle worker but the queue.
"""

from __future__ import annotations

import math
import os
import threading
from collections import Counter
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from dfq.lease import Lease
from dfq.queue import Queue
from dfq.worker.delivery import Delivery
from dfq.worker.draining import Remaining
from dfq.worker.handlers import HandlerSet
from dfq.worker.health import HealthFile
from dfq.worker.heartbeat import Heartbeats
from dfq.worker.intake import Intake
from dfq.worker.logs import LOGGER
from dfq.worker.notify import READY, STOPPING, Notifier
from dfq.worker.options import Progress, WorkerOptions
from dfq.worker.pool import Job, Pool
from dfq.worker.results import Results
from dfq.worker.running import Runner
from dfq.worker.settlement import Settled, Settler
from dfq.worker.signals import StopSignals
from dfq.worker.watchdog import Watchdog

if TYPE_CHECKING:
    from dfq.worker.metrics import Metrics

#: What can be stopped (a coroutine, a process) gets this long to end once it is told to.
STOP_PATIENCE_SECONDS = 5.0
#: The same once a second signal came.
AT_ONCE_PATIENCE_SECONDS = 0.5
#: Writing the last outcomes may take this long; then their leases are left to end by themselves.
FAREWELL_SECONDS = 10.0
#: So many handlers may hang past their time limit before the worker ends, to be restarted.
MAX_ABANDONED = 16

EXIT_DONE, EXIT_FAILED, EXIT_NOTHING = 0, 1, 3

_SECOND_THREAD = 2


class Worker:
    """Works on the tasks of one queue until it is told to stop."""

    def __init__(
        self,
        queue: Queue,
        handlers: HandlerSet,
        options: WorkerOptions | None = None,
        on_progress: Callable[[Progress], None] | None = None,
        *,
        notifier: Notifier | None = None,
    ) -> None:
        self._queue = queue
        self._handlers = handlers
        self._options = options = options or WorkerOptions()
        self._on_progress = on_progress
        self.worker_id = options.worker_id or (
            f"{os.uname().nodename}-{os.getpid()}-{queue.chance.bits(16):04x}"
        )
        policy = queue.policy
        lease_seconds = options.lease_seconds or policy.lease_seconds
        beat_seconds = min(policy.heartbeat_seconds, lease_seconds / 3)
        self._give_up = threading.Event()
        self._results = None if options.results_to is None else Results(options.results_to)
        self._health = self._health_file()
        self._watchdog = Watchdog(notifier or Notifier(), queue.clock, self._in_words)
        self._heartbeats = Heartbeats(
            queue,
            beat_seconds,
            None if self._health is None else self._health.beat,
            lease_seconds=options.lease_seconds,
            part=self._watchdog.part("the heartbeat"),
        )
        self._runner = Runner(
            Settler(queue, lease_seconds, self._give_up, self._results),
            self._heartbeats,
            fast_loop=options.concurrency > 1,
            on_settled=self._count,
        )
        self._intake = Intake(
            queue,
            self.worker_id,
            handlers.narrow(options.filter),
            options,
            on_poll=(lambda: None) if self._health is None else self._health.poll,
            on_remaining=self._note_remaining,
            part=self._watchdog.part("the search for work"),
        )
        self._pool = self._runner.pool = Pool(
            self._lead,
            concurrency=options.concurrency,
            threads=_thread_count(handlers, options.concurrency),
            on_quiet=lambda: self._inbox.put("quiet"),
            on_bug=self._bug,
        )
        self._metrics = self._open_metrics()
        self._inbox: SimpleQueue[str | int] = SimpleQueue()
        self._wake_at = math.inf
        self._counts_lock = threading.Lock()
        self._telling_lock = threading.Lock()
        self._counts: Counter[Settled] = Counter()
        self._left: Remaining | None = None
        self._finished_at_look = 0
        self._last: Settled | None = None
        self._broken = False
        self._stop_signal: int | None = None
        self._stop_at: float | None = None
        self._at_once = False

    @property
    def progress(self) -> Progress:
        """How far it is."""
        with self._counts_lock:
            counts, left = self._counts.copy(), self._left
            since_look = self._finished() - self._finished_at_look
        return Progress(
            completed=counts["completed"],
            retried=counts["retried"],
            failed=counts["failed"],
            released=counts["released"],
            running=self._pool.in_flight,
            remaining=None if left is None else max(0, left.runnable - since_look),
            stuck=0 if left is None else len(left.stuck),
        )

    def stop(self, *, at_once: bool = False) -> None:
        """Claim nothing more; end when what runs is done, or at once. From any thread."""
        self._inbox.put("at once" if at_once else "stop")

    def run(self) -> int:
        """Work; returns the exit code."""
        LOGGER.info(
            "worker %s works on %s: %s", self.worker_id, self._queue.url, self._handlers.describe()
        )
        if self._metrics is not None and self._options.metrics_port is not None:
            self._metrics.serve(self._options.metrics_host, self._options.metrics_port)
        with StopSignals(self._inbox.put, wake=lambda: self._inbox.put("")):
            self._heartbeats.start()
            self._pool.start()
            self._watchdog.begin(READY)
            try:
                while not self._step():
                    pass
                if self._stop_at is None:
                    self._intake.end()
            finally:
                self._farewell()
        return self._exit_code()

    # The caller's thread: messages and deadlines

    def _step(self) -> bool:
        """Wait for a message or a deadline and act on it; True when all is done."""
        try:
            message = self._inbox.get(timeout=self._patience())
        except Empty:
            message = ""
        if message == "quiet":
            return True
        if message == "stop":
            self._begin_to_stop(None)
        elif message == "at once":
            self._stop_at_once(None)
        elif isinstance(message, int):
            if self._stop_at is None:
                self._begin_to_stop(message)
            else:
                self._stop_at_once(message)
        self._enforce_limits()
        self._watchdog.feed()
        if self._pool.abandoned > MAX_ABANDONED and self._stop_at is None:
            LOGGER.error(
                "%d handlers hang past their time limit; the worker ends, start it again",
                self._pool.abandoned,
            )
            self._broken = True
            self._begin_to_stop(None)
        return self._overdue()

    def _patience(self) -> float | None:
        """How long until something has to be done without being asked."""
        # While this is infinite, every new deadline announces itself.
        self._wake_at = math.inf
        limits = (_limit_of(d) for d in self._runner.running())
        soonest = min(limits, default=math.inf)
        soonest = min(soonest, self._watchdog.due_at)
        if self._stop_at is not None:
            now = self._queue.clock.boot()
            if self._pool.leading:  # an interrupt before the wait began is lost: say it again
                self._queue.interrupt()
                soonest = min(soonest, now + 0.05)
            soonest = min(soonest, self._stop_at if self._stop_at > now else now + 0.1)
        self._wake_at = soonest
        if soonest == math.inf:
            return None
        return max(0.0, soonest - self._queue.clock.boot())

    def _begin_to_stop(self, signal_number: int | None) -> None:
        if self._stop_at is not None:
            return
        grace = self._options.grace_seconds
        self._stop_at = self._queue.clock.boot() + grace
        self._stop_signal = signal_number
        self._watchdog.tell(STOPPING)
        self._intake.stop()
        self._pool.close()
        if self._pool.in_flight:
            LOGGER.info(
                "stopping: %d running tasks have %g s to end; signal again to stop at once",
                self._pool.in_flight,
                grace,
            )

    def _stop_at_once(self, signal_number: int | None) -> None:
        self._begin_to_stop(signal_number)
        if not self._at_once:
            self._at_once = True
            self._stop_signal = signal_number
            self._stop_at = self._queue.clock.boot()
            self._give_up.set()
            LOGGER.warning("stopping at once: running tasks are put back")

    def _enforce_limits(self) -> None:
        now = self._queue.clock.boot()
        for delivery in self._runner.running():
            if delivery.give_up_at is not None:
                if now >= delivery.give_up_at:
                    self._runner.give_up(delivery)
            elif self._stop_at is not None and now >= self._stop_at:
                self._tell_to_stop(delivery, "stopping", now)
            elif delivery.deadline is not None and now >= delivery.deadline:
                self._tell_to_stop(delivery, "timeout", now)

    def _tell_to_stop(self, delivery: Delivery, reason: Any, now: float) -> None:
        delivery.context.cancelled.set(reason)
        patience = AT_ONCE_PATIENCE_SECONDS if self._at_once else STOP_PATIENCE_SECONDS
        if delivery.entry.stoppable:
            delivery.give_up_at = now + patience
        else:
            delivery.give_up_at = now
            self._runner.give_up(delivery)

    def _overdue(self) -> bool:
        """Whether even the last outcomes take too long to write."""
        if self._stop_at is None:
            return False
        allowed = FAREWELL_SECONDS + STOP_PATIENCE_SECONDS
        if self._at_once:
            allowed = 2.0
        return self._queue.clock.boot() > self._stop_at + allowed

    def _farewell(self) -> None:
        self._intake.stop()
        self._pool.close()
        self._give_up.set()
        left = self._runner.running()
        if left:
            LOGGER.warning("%d leases are left to end by themselves", len(left))
        self._heartbeats.stop()
        self._heartbeats.join(1.0)
        self._runner.stop(1.0)
        if self._health is not None:
            self._health.remove()
        if self._metrics is not None:
            self._metrics.stop()
        if self._results is not None:
            self._results.close()
        done = self.progress
        LOGGER.info(
            "worker %s ended: %d completed, %d to be tried again, %d failed, %d put back",
            self.worker_id,
            done.completed,
            done.retried,
            done.failed,
            done.released,
        )

    def _exit_code(self) -> int:
        if self._broken or self._intake.ended == "failed":
            return EXIT_FAILED
        if self._at_once and self._stop_signal is not None:
            return 128 + self._stop_signal
        if self._options.once:
            if self._last is None:
                return EXIT_NOTHING
            return EXIT_DONE if self._last == "completed" else EXIT_FAILED
        return EXIT_DONE

    # The pool's threads

    def _lead(self, limit: int) -> list[Job]:
        jobs = [self._begin(lease) for lease in self._intake.take(limit)]
        if self._intake.ended is not None:
            self._pool.close()
        return jobs

    def _begin(self, lease: Lease) -> Job:
        delivery = Delivery(
            self._queue,
            lease,
            self._handlers.find(lease.task),
            timeout_seconds=self._options.timeout_seconds,
            lease_seconds=self._options.lease_seconds,
        )
        self._runner.add(delivery)
        if self._metrics is not None:
            self._metrics.claimed()
        if delivery.deadline is not None and delivery.deadline < self._wake_at:
            self._inbox.put("deadline")
        return lambda: self._runner.start(delivery)

    def _bug(self, error: BaseException) -> None:
        LOGGER.error("the worker ends because of a bug in it", exc_info=error)
        self._broken = True
        self.stop()

    def _count(self, delivery: Delivery, settled: Settled) -> None:
        if self._metrics is not None:
            self._metrics.settled(settled, delivery.ended_at - delivery.started_at)
        with self._counts_lock:
            self._last = settled
            self._counts[settled] += 1
        self._tell_progress()
        # Whoever waits for more may find that this was the last.
        if self._options.drain and self._pool.leading and self._pool.in_flight <= 1:
            self._queue.interrupt()

    def _note_remaining(self, left: Remaining) -> None:
        with self._counts_lock:
            self._left = left
            self._finished_at_look = self._finished()
        self._tell_progress()

    def _finished(self) -> int:
        return self._counts["completed"] + self._counts["failed"]

    def _tell_progress(self) -> None:
        if self._on_progress is None:
            return
        try:
            with self._telling_lock:
                self._on_progress(self.progress)
        except Exception:
            LOGGER.exception("progress can't be shown any more")
            self._on_progress = None

    # What is told of it

    def _open_metrics(self) -> Metrics | None:
        if self._options.metrics_port is None:
            return None
        from dfq.worker.metrics import Metrics

        return Metrics(
            self._queue,
            held=lambda: len(self._runner.running()),
            failed_beats=lambda: self._heartbeats.failed,
        )

    def _health_file(self) -> HealthFile | None:
        if self._options.health_path is None:
            return None
        return HealthFile(self._options.health_path, self._queue.clock, self._describe)

    def _in_words(self) -> str:
        done = self.progress
        return (
            f"{done.completed} completed, {done.retried} tried again, {done.failed} failed, "
            f"{done.running} running"
        )

    def _describe(self) -> dict[str, Any]:
        done = self.progress
        return {
            "worker_id": self.worker_id,
            "pid": os.getpid(),
            "queue": self._queue.url,
            "completed": done.completed,
            "retried": done.retried,
            "failed": done.failed,
            "released": done.released,
            "held": [_held(delivery) for delivery in self._runner.running()],
        }


def _held(delivery: Delivery) -> dict[str, Any]:
    fraction, note = delivery.context.last_progress or (None, "")
    return {
        "task_id": delivery.task_id,
        "name": delivery.context.task.name,
        "attempt": delivery.context.attempt,
        "fence": delivery.context.fence,
        "progress": fraction,
        "note": note,
    }


def _limit_of(delivery: Delivery) -> float:
    if delivery.abandoned:
        return math.inf
    limit = delivery.deadline if delivery.give_up_at is None else delivery.give_up_at
    return math.inf if limit is None else limit


def _thread_count(handlers: HandlerSet, concurrency: int) -> int:
    # Coroutines need threads only to claim and to write outcomes.
    if handlers.all_coroutines:
        return min(concurrency + 1, 4)
    return max(concurrency, _SECOND_THREAD) if handlers.has_coroutines else concurrency
