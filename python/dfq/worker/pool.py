"""The threads of a worker: one of them leads, the others follow.

Only one thread at a time looks for work. When it finds some it hands the lead to another and
does the work itself, so a task needs no change of thread, and an idle worker has a single
thread that waits. Threads are started when they are needed, and are daemons: a handler that
hangs can't keep the process from ending.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

Job = Callable[[], None]


class Pool:
    """Runs jobs in at most so many threads, and leads while there is room for more work."""

    def __init__(
        self,
        lead: Callable[[int], Sequence[Job]],
        *,
        concurrency: int,
        threads: int,
        on_quiet: Callable[[], None],
        on_bug: Callable[[BaseException], None],
    ) -> None:
        #: Looks for up to so many pieces of work; may wait a while and come back with none.
        self._lead_once = lead
        self._concurrency = concurrency
        self._quota = threads
        self._on_quiet = on_quiet
        self._on_bug = on_bug
        self._condition = threading.Condition()
        self._jobs: deque[Job] = deque()
        self._in_flight = 0
        self._threads = 0
        self._idle = 0
        self._abandoned = 0
        self._leading = False
        self._closed = False

    @property
    def leading(self) -> bool:
        """Whether a thread is looking for work."""
        return self._leading

    @property
    def in_flight(self) -> int:
        """Pieces of work begun and not finished."""
        return self._in_flight

    @property
    def abandoned(self) -> int:
        """Threads that nobody waits for any more and that have not come back."""
        return self._abandoned

    def start(self) -> None:
        """Begin to look for work."""
        with self._condition:
            self._staff(1)

    def close(self) -> None:
        """Look for no more work; what is in flight goes on."""
        with self._condition:
            if not self._closed:
                self._closed = True
                self._condition.notify_all()
                self._quiet_if_done()

    def submit(self, job: Job) -> None:
        """Run ``job`` in one of the threads, before anything new is begun."""
        with self._condition:
            self._jobs.append(job)
            self._staff(1)

    def finish(self) -> None:
        """One piece of work is finished."""
        with self._condition:
            self._in_flight -= 1
            self._quiet_if_done()

    def abandon(self) -> None:
        """Let another thread take the place of one that hangs."""
        with self._condition:
            self._quota += 1
            self._abandoned += 1

    def returned(self) -> None:
        """An abandoned thread came back after all; one thread too many ends."""
        with self._condition:
            self._quota -= 1
            self._abandoned -= 1

    def _run(self) -> None:
        while (job := self._next()) is not None:
            try:
                job()
            except BaseException as error:
                self._on_bug(error)

    def _next(self) -> Job | None:
        with self._condition:
            while True:
                if self._threads > self._quota:
                    break
                if self._jobs:
                    return self._jobs.popleft()
                if self._may_lead():
                    self._leading = True
                    return self._lead
                if self._closed and self._in_flight == 0:
                    break
                self._idle += 1
                self._condition.wait()
                self._idle -= 1
            self._threads -= 1
            return None

    def _may_lead(self) -> bool:
        return not self._leading and not self._closed and self._in_flight < self._concurrency

    def _lead(self) -> None:
        found: Sequence[Job] = ()
        try:
            found = self._lead_once(self._concurrency - self._in_flight)
        finally:
            with self._condition:
                self._leading = False
                self._in_flight += len(found)
                self._jobs.extend(found)
                # This thread takes one piece of work itself; the rest, and the lead, are others'.
                if found:
                    self._staff(len(found) - 1 + self._may_lead())
                self._quiet_if_done()

    def _staff(self, needed: int) -> None:
        self._condition.notify(needed)
        for _ in range(min(needed - self._idle, self._quota - self._threads)):
            thread = threading.Thread(target=self._run, name="dfq-worker", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                if self._threads == 0:
                    raise
                return  # the system has no more threads; those there are do the work
            self._threads += 1

    def _quiet_if_done(self) -> None:
        if self._closed and not self._leading and self._in_flight == 0 and not self._jobs:
            self._condition.notify_all()
            self._on_quiet()
