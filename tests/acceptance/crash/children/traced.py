"""What a child needs that is traced: the same system calls in every run, between two marks."""

from __future__ import annotations

import ctypes
import json
import os
import select
import threading
from collections.abc import Callable

from dfq.ambient import SYSTEM_CLOCK
from dfq.testing import FakeClock

#: It stands still: how often a shard is read again depends on the time, and with that the
#: number of a call.
CLOCK = FakeClock(SYSTEM_CLOCK.wall(), SYSTEM_CLOCK.boot())


def say(value: object) -> None:
    os.write(1, json.dumps(value).encode() + b"\n")


def stay_on_one_core() -> None:
    """With several, threads share the reading of shards as it comes, and a call has another
    number in the next run. As many threads are used as there are cores to be had."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[os.getpid() % len(cores)]})


def between_marks(
    verb: Callable[[], dict[str, object]], told: dict[str, object]
) -> dict[str, object]:
    """Run in a thread of its own, of which strace gets hold before it is told to go: so the
    number of a call does not depend on what went before."""
    outcomes = []

    def run() -> None:
        # Where only parents may trace: allow anybody (PR_SET_PTRACER, PR_SET_PTRACER_ANY).
        ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(2**64 - 1), 0, 0, 0)
        say({**told, "thread": threading.get_native_id()})
        select.select([0], [], [])  # not a read: strace would count it, or not
        os.getpgid(0)
        outcomes.append(verb())
        os.getpgid(0)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return outcomes[0]
