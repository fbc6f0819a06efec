"""The daemon: pass after pass, patient when there is nothing to do."""

from __future__ import annotations

import threading

from dfq.compiler.passes import Bounds, Pass
from dfq.compiler.watching import Watch
from dfq.errors import QueueUnavailable
from dfq.stores.memory import MemoryStore
from dfq.testing import FakeClock
from tests.indexes import WALL, make_index


def test_it_pauses_longer_and_longer_and_at_once_not_at_all_when_something_comes():
    clock = FakeClock(WALL)
    index = make_index(MemoryStore(clock=clock), clock=clock)
    pauses, reports, stop = [], [], threading.Event()

    def wait(_stop, seconds):
        pauses.append(seconds)
        if len(pauses) == 9:
            index.put({"domain": "a"})
        if len(pauses) == 12:
            stop.set()

    one = Pass(index._site, Bounds(parallel=1), stop=stop)
    Watch(one, reports.append, errors_are_bugs, wait=wait).run()
    for number, pause in enumerate(pauses[:9]):
        longest = min(60.0, 2.0**number)
        assert longest / 2 <= pause <= longest
    assert pauses[9] <= 1.0
    assert [report.files for report in reports].count(1) == 1


def errors_are_bugs(error):
    raise error


def test_bad_spells_are_told_and_waited_out():
    clock = FakeClock(WALL)
    index = make_index(MemoryStore(clock=clock), clock=clock)
    index.put({"domain": "a"})
    real, told, stop = index.store.list, [], threading.Event()

    def away(*args, **options):
        raise QueueUnavailable("away")

    def wait(_stop, _seconds):
        if len(told) == 3:
            index.store.list = real
        if not index.plan().waiting if len(told) == 3 else False:
            stop.set()

    index.store.list = away
    Watch(Pass(index._site, stop=stop), lambda _report: None, told.append, wait=wait).run()
    assert len(told) == 3
    assert index.stats().records == 1
