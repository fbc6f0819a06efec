"""How far several workers are together: seen in the queue, for they count only their own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from dfq.errors import DfqError
from dfq.queue import Queue
from dfq.record import Filter, Stats
from dfq.worker.draining import Remaining, estimate, remaining
from dfq.worker.logs import LOGGER
from dfq.worker.options import Progress

#: It looks this often, and less often where a look takes long.
LOOK_SECONDS = 0.25
_JOIN_SECONDS = 5.0


class Overview:
    """Tells ``on_progress`` how far the queue is, from a thread of its own, while it is entered.

    What others complete meanwhile counts as well.
    """

    def __init__(
        self, queue: Queue, wanted: Filter, on_progress: Callable[[Progress], None]
    ) -> None:
        self._queue = queue
        self._wanted = wanted
        self._on_progress = on_progress
        self._over = threading.Event()
        self._before: Stats | None = None
        self._thread = threading.Thread(target=self._run, name="dfq-overview", daemon=True)

    def __enter__(self) -> Self:
        self._look(estimate)  # before the workers begin, or their first tasks would not count
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join(_JOIN_SECONDS)
        if not self._thread.is_alive():
            self._look(lambda queue: remaining(queue, self._wanted))

    def _run(self) -> None:
        clock = self._queue.clock
        pause = LOOK_SECONDS
        while not self._over.wait(pause):
            began = clock.boot()
            self._look(estimate)
            pause = max(LOOK_SECONDS, 4 * (clock.boot() - began))

    def _look(self, count: Callable[[Queue], Remaining]) -> None:
        try:
            stats, left = self._queue.stats(), count(self._queue)
        except DfqError as error:  # the workers bear with it, and say so
            LOGGER.debug("can't see how far the queue is: %s", error)
            return
        before = self._before = self._before or stats
        self._on_progress(
            Progress(
                # Finished tasks may be deleted meanwhile.
                completed=max(0, stats.completed - before.completed),
                failed=max(0, stats.failed - before.failed),
                running=stats.leased,
                remaining=left.runnable,
                stuck=len(left.stuck),
            )
        )
