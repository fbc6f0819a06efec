"""The threads of a worker."""

from __future__ import annotations

import threading

import pytest

from dfq.worker.pool import Pool
from tests.patience import patience

LONG = patience(20.0)


class Source:
    """Work to lead to: hands out what it has, then says that it has ended."""

    def __init__(self, jobs):
        self.jobs = list(jobs)
        self.leading = 0
        self.most_leading = 0
        self.pool = None
        self._lock = threading.Lock()

    def __call__(self, limit):
        with self._lock:
            self.leading += 1
            self.most_leading = max(self.most_leading, self.leading)
        try:
            taken, self.jobs = self.jobs[:limit], self.jobs[limit:]
            if not self.jobs:
                self.pool.close()
            return taken
        finally:
            with self._lock:
                self.leading -= 1


def make(jobs, *, concurrency=1, threads=None):
    source, quiet, bugs = Source(jobs), threading.Event(), []
    pool = Pool(
        source,
        concurrency=concurrency,
        threads=threads or concurrency,
        on_quiet=quiet.set,
        on_bug=bugs.append,
    )
    source.pool = pool
    return pool, source, quiet, bugs


@pytest.mark.parametrize("concurrency", [1, 2, 7])
def test_all_work_is_done_and_only_one_thread_leads_at_a_time(concurrency):
    done = []

    def job(number):
        def work():
            done.append(number)
            pool.finish()

        return work

    pool, source, quiet, bugs = make([job(n) for n in range(500)], concurrency=concurrency)
    pool.start()
    assert quiet.wait(LONG)
    assert sorted(done) == list(range(500))
    assert (source.most_leading, pool.in_flight, bugs) == (1, 0, [])


def test_an_idle_pool_has_one_thread():
    before = set(threading.enumerate())
    leading, go_on = threading.Event(), threading.Event()
    pool, _, quiet, _ = make([], concurrency=8)

    def lead(_limit):
        leading.set()
        assert go_on.wait(LONG)
        pool.close()
        return []

    pool._lead_once = lead
    pool.start()
    assert leading.wait(LONG)
    assert len(set(threading.enumerate()) - before) == 1
    go_on.set()
    assert quiet.wait(LONG)


def test_an_abandoned_thread_is_replaced_and_ends_when_it_comes_back():
    hanging, go_on, came_back = threading.Event(), threading.Event(), threading.Event()
    done = []

    def hangs():
        hanging.set()
        assert go_on.wait(LONG)
        pool.returned()
        came_back.set()

    def works():
        done.append(threading.current_thread())
        pool.finish()

    pool, _, quiet, _ = make([hangs, works, works])
    pool.start()
    assert hanging.wait(LONG)
    pool.abandon()
    pool.submit(pool.finish)
    assert quiet.wait(LONG)
    assert (len(done), pool.abandoned) == (2, 1)
    go_on.set()
    assert came_back.wait(LONG)
    assert pool.abandoned == 0


def test_a_bug_in_a_job_is_reported_and_the_thread_goes_on():
    def breaks():
        pool.finish()
        raise ZeroDivisionError

    pool, _, quiet, bugs = make([breaks, breaks])
    pool.start()
    assert quiet.wait(LONG)
    assert [type(bug) for bug in bugs][:1] == [ZeroDivisionError]


def test_a_pool_that_is_closed_before_it_starts_is_quiet():
    pool, _, quiet, _ = make([])
    pool.close()
    assert quiet.is_set()


def test_too_few_threads_of_the_system_are_made_do_with(monkeypatch):
    started = []
    start = threading.Thread.start

    def limited(thread):
        if started and thread.name == "dfq-worker":
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    done = []

    def work():
        done.append(1)
        pool.finish()

    pool, _, quiet, bugs = make([work] * 10, concurrency=4)
    monkeypatch.setattr(threading.Thread, "start", limited)
    pool.start()
    assert quiet.wait(LONG)
    assert (len(done), bugs) == (10, [])
