"""The event loop of a worker."""

from __future__ import annotations

import asyncio
import sys
import threading

import pytest

from dfq.testing import memory_queue
from dfq.worker.context import TaskContext
from dfq.worker.coroutines import Coroutines
from tests.patience import patience

LONG = patience(20.0)


@pytest.fixture
def context():
    queue = memory_queue()
    queue.push(1)
    return TaskContext(queue, queue.claim())


class Outcome:
    """Waits for what came of a coroutine."""

    def __init__(self):
        self.ended = threading.Event()

    def __call__(self, result, error):
        self.result, self.error = result, error
        self.ended.set()

    def wait(self):
        assert self.ended.wait(LONG)
        return self.result, self.error


def outcome_of(coroutine, context, **options):
    loop, outcome = Coroutines(**{"fast": False, **options}), Outcome()
    loop.start(coroutine, context, outcome)
    try:
        return outcome.wait()
    finally:
        loop.stop(LONG)


@pytest.mark.parametrize("fast", [True, False])
def test_a_coroutines_result_is_told(context, fast):
    async def work():
        await asyncio.sleep(0)
        return 42

    assert outcome_of(work(), context, fast=fast) == (42, None)


def test_without_uvloop_the_standard_loop_does_it(context, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvloop", None)

    async def work():
        return type(asyncio.get_running_loop()).__module__

    assert outcome_of(work(), context, fast=True)[0].startswith("asyncio")


def test_with_uvloop_it_is_used(context):
    pytest.importorskip("uvloop")

    async def work():
        return type(asyncio.get_running_loop()).__module__

    assert outcome_of(work(), context, fast=True)[0].startswith("uvloop")


def test_a_coroutine_cancelled_before_its_first_step_is_told_too(context):
    context.cancelled.set("lost")
    ran = []

    async def work():
        ran.append(1)

    _, error = outcome_of(work(), context)
    assert isinstance(error, asyncio.CancelledError)
    assert ran == []


def test_stopping_the_loop_cancels_what_runs(context):
    loop, outcome, begun = Coroutines(fast=False), Outcome(), threading.Event()

    async def work():
        begun.set()
        await asyncio.Event().wait()

    loop.start(work(), context, outcome)
    assert begun.wait(LONG)
    loop.stop(LONG)
    assert isinstance(outcome.wait()[1], asyncio.CancelledError)
