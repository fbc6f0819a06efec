"""Handlers that fork: the child must not go on as a second worker."""

from __future__ import annotations

import os
import sys
import warnings

import pytest

from dfq.worker.running import FORKED_EXIT_CODE


def fork():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of threads
        return os.fork()


@pytest.mark.parametrize("how", ["returns", "raises", "exits"])
def test_a_forked_child_that_comes_back_is_ended_and_settles_nothing(queue, start, how):
    def handler(payload):
        child = fork()
        if child == 0:
            if how == "raises":
                raise ValueError("in the child")
            if how == "exits":
                sys.exit(3)
            return "from the child"
        _, status = os.waitpid(child, 0)
        return os.waitstatus_to_exitcode(status)

    queue.push(1, id="a")
    assert start(queue, handler, drain=True).ended() == 0
    assert queue.get("a").result == FORKED_EXIT_CODE


def test_a_coroutine_that_forks_is_no_different(queue, start):
    async def handler(payload):
        child = fork()
        if child == 0:
            return "from the child"
        _, status = os.waitpid(child, 0)
        return os.waitstatus_to_exitcode(status)

    queue.push(1, id="a")
    assert start(queue, handler, drain=True).ended() == 0
    assert queue.get("a").result == FORKED_EXIT_CODE
