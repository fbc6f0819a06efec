"""The liveness file."""

from __future__ import annotations

import json
import threading

import pytest

from dfq.testing import FakeClock
from dfq.worker.health import HealthFile, check


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "worker.json")


def written(path, clock):
    file = HealthFile(path, clock, lambda: {"worker_id": "w"})
    file.poll()
    return file


def test_a_worker_that_polled_just_now_is_alive(path):
    clock = FakeClock()
    written(path, clock)
    verdict = check(path, 30, clock)
    assert verdict.alive
    assert verdict.workers[0]["worker_id"] == "w"
    assert verdict.workers[0]["last_poll_at"] == clock.wall()


def test_a_worker_that_has_been_silent_for_too_long_is_not(path):
    clock = FakeClock()
    written(path, clock)
    clock.advance(31)
    verdict = check(path, 30, clock)
    assert not verdict.alive
    assert "31 s ago" in verdict.message


def test_a_clock_set_by_a_day_changes_nothing(path):
    clock = FakeClock()
    written(path, clock)
    clock.jump_wall(86_400)
    assert check(path, 30, clock).alive
    clock.jump_wall(-2 * 86_400)
    assert check(path, 30, clock).alive


def test_a_file_from_before_the_last_start_of_the_machine_is_stale(path):
    written(path, FakeClock(boot=1_000_000))
    assert not check(path, 30, FakeClock(boot=10)).alive


def test_a_busy_worker_is_alive_though_it_does_not_poll(path):
    clock = FakeClock()
    file = written(path, clock)
    polled_at = clock.wall()
    clock.advance(60)
    file.beat()
    verdict = check(path, 30, clock)
    assert verdict.alive
    assert verdict.workers[0]["last_poll_at"] == polled_at


def test_it_is_not_written_for_every_poll(path, tmp_path):
    clock = FakeClock()
    file = written(path, clock)
    before = (tmp_path / "worker.json").stat().st_ino
    clock.advance(0.5)
    file.poll()
    assert (tmp_path / "worker.json").stat().st_ino == before


@pytest.mark.parametrize("content", ["", "{", "[]", '{"alive_boot": "soon"}'])
def test_a_file_that_is_something_else_is_told(path, tmp_path, content):
    (tmp_path / "worker.json").write_text(content)
    verdict = check(path, 30, FakeClock())
    assert not verdict.alive
    assert "can't be read as a liveness file" in verdict.message


def test_no_file_means_no_worker(path):
    assert "is not there" in check(path, 30).message
    assert "is not there" in check("/no/such/folder/file", 30).message


def test_with_several_processes_all_must_be_alive(path):
    clock = FakeClock()
    written(f"{path}.1", clock)
    clock.advance(20)
    written(f"{path}.2", clock)
    assert len(check(path, 30, clock).workers) == 2
    clock.advance(20)
    assert f"{path}.1" in check(path, 30, clock).message


def test_a_file_that_can_not_be_written_is_reported_once(tmp_path, caplog):
    clock = FakeClock()
    file = written(str(tmp_path / "missing" / "worker.json"), clock)
    clock.advance(10)
    file.poll()
    assert caplog.text.count("the liveness file can't be written") == 1


def test_a_worker_says_what_it_holds_and_removes_the_file_when_it_ends(
    quick_queue, start, path, happens, tmp_path
):
    begun, go_on = threading.Event(), threading.Event()

    def handler(ctx, payload):
        ctx.progress(0.25, "page 1")
        begun.set()
        happens(go_on)

    quick_queue.push(1, id="a")
    worker = start(quick_queue, handler, health_path=path, worker_id="w")
    happens(begun)
    content = json.loads((tmp_path / "worker.json").read_text())
    assert (content["worker_id"], content["queue"]) == ("w", quick_queue.url)
    assert check(path, 60).alive
    held = worker.worker._describe()["held"]
    assert held == [
        {"task_id": "a", "name": None, "attempt": 1, "fence": 1, "progress": 0.25, "note": "page 1"}
    ]
    go_on.set()
    worker.stopped()
    assert not (tmp_path / "worker.json").exists()
