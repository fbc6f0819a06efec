from __future__ import annotations

import logging
import re
import socket
import sys
import threading
from urllib.request import urlopen

import pytest

from dfq.engines.s3.queue import S3Queue
from dfq.errors import InvalidConfig, QueueUnavailable, Reject
from dfq.stores.memory import MemoryStore
from dfq.testing import FakeClock
from dfq.worker.child import Place, child_options
from dfq.worker.handlers import handler_set
from dfq.worker.loop import Worker
from dfq.worker.metrics import Metrics
from dfq.worker.options import WorkerOptions


@pytest.fixture
def served(caplog):
    """The address that the last worker told of."""
    caplog.set_level(logging.INFO)

    def served():
        (*_, url) = re.findall(r"metrics are at (\S+)", caplog.text)
        return url

    return served


def read(url):
    with urlopen(url, timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


def test_a_worker_serves_what_it_did(queue, start, served, happens):
    failed, last, told = threading.Event(), threading.Event(), threading.Event()

    def handle(payload):
        if payload == "reject":
            raise Reject("no")
        if payload == "once more" and not failed.is_set():
            failed.set()
            raise ValueError("not yet")
        if payload == "last":
            last.set()
            happens(told)

    for payload in ("reject", "once more", "fine"):
        queue.push(payload)
    queue.push("last", priority="low")
    worker = start(queue, handle, metrics_port=0, drain=True)
    happens(last)
    counts = read(served())
    told.set()
    assert counts["dfq_tasks_claimed_total"] == 5
    assert counts["dfq_leases_held"] == 1
    settled = {
        outcome: counts[f'dfq_tasks_settled_total{{outcome="{outcome}"}}']
        for outcome in ("completed", "failed", "retried", "released", "lost")
    }
    assert settled == {"completed": 2, "failed": 1, "retried": 1, "released": 0, "lost": 0}
    assert counts["dfq_handler_seconds_count"] == 4
    assert counts["dfq_heartbeats_failed_total"] == 0
    assert not [name for name in counts if "store" in name]
    assert worker.ended() == 0
    with pytest.raises(OSError):
        read(served())


def test_requests_to_a_store_are_told_by_kind(served):
    store = MemoryStore(clock=FakeClock())
    metrics = Metrics(S3Queue(store, certified=True), held=lambda: 0, failed_beats=lambda: 0)
    for _ in range(3):
        store.put("key", b"")
    metrics.serve("127.0.0.1", 0)
    try:
        counts = read(served())
    finally:
        metrics.stop()
    assert counts['dfq_store_requests_total{kind="put"}'] == 3
    assert counts['dfq_store_requests_total{kind="list"}'] == 0


def test_heartbeats_that_fail_are_counted(quick_queue, proxy, start, served, signalled, happens):
    def fail(*args, **options):
        raise QueueUnavailable("gone")

    beat, done = signalled(fail), threading.Event()
    quick_queue.push("task")
    queue = proxy(quick_queue, heartbeat_many=beat)
    worker = start(queue, lambda payload: happens(done), metrics_port=0, drain=True)
    # The third begins after the second was counted.
    beat.wait_for_calls(3)
    counts = read(served())
    done.set()
    assert worker.ended() == 0
    assert counts["dfq_heartbeats_failed_total"] >= 2


def test_the_time_of_a_handler_ends_before_its_outcome_is_written(queue, proxy, start, served):
    clock = FakeClock()
    seen = {}

    def slow_ack(lease, result):
        clock.advance(100)
        queue.ack(lease, result)

    def look(payload):
        if payload == "look":
            seen.update(read(served()))
        else:
            clock.advance(7)

    queue.push("work")
    queue.push("look", priority="low")
    slow = proxy(queue, ack=slow_ack, clock=clock)
    assert start(slow, look, metrics_port=0, max_tasks=2).ended() == 0
    assert seen["dfq_handler_seconds_sum"] == 7


def test_without_the_extra_it_says_what_to_install(queue, monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(InvalidConfig, match=r"pip install 'dfq\[metrics\]'"):
        Worker(queue, handler_set(len), WorkerOptions(metrics_port=0))


def test_a_port_that_is_taken_is_told(queue):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        worker = Worker(queue, handler_set(len), WorkerOptions(metrics_port=port, drain=True))
        with pytest.raises(InvalidConfig, match=rf"127\.0\.0\.1 port {port}: .*--metrics-port"):
            worker.run()


@pytest.mark.parametrize(("port", "processes"), [(-1, 1), (65_536, 1), (65_530, 7)])
def test_a_port_that_can_not_be_is_told(port, processes):
    with pytest.raises(InvalidConfig, match=f"metrics_port is {port}"):
        WorkerOptions(metrics_port=port, processes=processes)


@pytest.mark.parametrize(
    ("given", "ports"), [(9000, [9000, 9001]), (0, [0, 0]), (None, [None] * 2)]
)
def test_each_process_has_a_port_of_its_own(given, ports):
    options = WorkerOptions(metrics_port=given, processes=2)
    children = [child_options(options, Place(number, 2, 9)) for number in (1, 2)]
    assert [child.metrics_port for child in children] == ports


def test_nothing_is_imported_for_a_worker_without_metrics(queue, monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    assert Worker(queue, handler_set(len), WorkerOptions(drain=True)).run() == 0
