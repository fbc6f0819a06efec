"""A worker in a thread, and queues that misbehave."""

from __future__ import annotations

import threading

import pytest

from dfq.policy import Policy, RetryPolicy
from dfq.testing import memory_queue
from dfq.worker.handlers import HandlerSet, handler_set
from dfq.worker.loop import Worker
from dfq.worker.options import WorkerOptions
from tests.patience import patience

#: No test waits longer than this for something that should happen.
LONG = patience(20.0)


class Background:
    """A worker that runs in a thread of its own."""

    def __init__(self, queue, handlers, **options):
        self.reports = []
        if not isinstance(handlers, HandlerSet):
            handlers = handler_set(*handlers)
        self.worker = Worker(queue, handlers, WorkerOptions(**options), self.reports.append)
        self.code = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        self.code = self.worker.run()

    def stop(self, **how):
        self.worker.stop(**how)

    def ended(self):
        """Wait for it to end by itself; returns the exit code."""
        self._thread.join(LONG)
        assert not self._thread.is_alive(), "the worker did not end"
        return self.code

    def stopped(self, **how):
        self.stop(**how)
        return self.ended()

    def is_alive(self):
        return self._thread.is_alive()


@pytest.fixture
def start():
    """Starts workers, and sees to it that they end."""
    started = []

    def start(queue, *functions, handlers=None, **options):
        started.append(Background(queue, handlers or functions, **options))
        return started[-1]

    yield start
    for background in started:
        if background.is_alive():
            background.stopped(at_once=True)


@pytest.fixture
def queue():
    """A queue whose retries come at once."""
    return memory_queue(policy=Policy(retry=RetryPolicy(base_seconds=0)))


@pytest.fixture
def quick_queue():
    """A queue whose leases are renewed many times a second."""
    return memory_queue(
        policy=Policy(lease_seconds=60, heartbeat_seconds=0.01, retry=RetryPolicy(base_seconds=0))
    )


class Proxy:
    """A queue with some verbs replaced."""

    def __init__(self, queue, **replaced):
        self._queue = queue
        self.__dict__.update(replaced)

    def __getattr__(self, name):
        return getattr(self._queue, name)


@pytest.fixture
def proxy():
    """Makes a queue with some verbs replaced."""
    return Proxy


def wait_for(event):
    """Wait for something that should happen."""
    assert event.wait(LONG), "it did not happen"


@pytest.fixture
def happens():
    """Waits for an event, with a bound."""
    return wait_for


class Signalled:
    """Wraps a verb so that a test can wait until it was called (and returned) so often."""

    def __init__(self, verb):
        self._verb = verb
        self._condition = threading.Condition()
        self.calls = 0

    def __call__(self, *args, **kwargs):
        try:
            return self._verb(*args, **kwargs)
        finally:
            with self._condition:
                self.calls += 1
                self._condition.notify_all()

    def wait_for_calls(self, count):
        with self._condition:
            assert self._condition.wait_for(lambda: self.calls >= count, LONG)


@pytest.fixture
def signalled():
    """Makes verbs that can be waited for."""
    return Signalled
