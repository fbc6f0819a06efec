"""A Pi without a clock chip starts in 1970; later the network tells the time, and it jumps."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.acceptance.pi.conftest import HERE

#: Long past 1970, and before any day on which this runs.
LATELY = 1_700_000_000


class Process:
    """One of the machine's processes."""

    def __init__(self, folder, role, environment):
        self._process = subprocess.Popen(
            [sys.executable, HERE / "children" / "no_clock_chip.py", folder, role],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def hear(self):
        return json.loads(self._process.stdout.readline())

    def ask(self):
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self.hear()

    def end(self):
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def start(tmp_path, environment):
    started = []

    def start(role):
        started.append(Process(tmp_path / "queue", role, environment))
        return started[-1]

    yield start
    for process in started:
        process.end()


def renewed(other, after):
    """Ask until the lease was renewed twice; whatever it does meanwhile must do no harm."""
    seen = {after["heartbeat_at"]}
    for _ in range(10_000):
        answer = other.ask()
        assert answer["states"]["held"] == "leased"
        seen.add(answer["heartbeat_at"])
        if len(seen) >= 3:
            return answer
    raise AssertionError("the lease is not renewed")


def test_a_jump_from_1970_to_now_steals_nothing_and_every_lease_is_kept(start, tmp_path):
    worker = start("worker")
    assert worker.hear()["began"] < 3_600
    other = start("other")
    before = other.ask()
    assert before["wall"] < 3_600
    assert (before["claimed"], before["expired"]) == ([], 0)
    assert before["states"] == {"held": "leased", "early": "delayed"}

    (tmp_path / "jump").touch()
    new = start("other")
    for process in (other, new):
        after = process.ask()
        assert after["wall"] > LATELY
        assert after["expired"] == 0
        assert after["states"]["held"] == "leased"
        assert "held" not in after["claimed"]
    after = renewed(new, after)
    assert after["heartbeat_at"] > LATELY, "renewals are stamped with the right time"
    assert after["states"]["early"] == "completed", "an hour from 1970 is over"

    (tmp_path / "done").touch()
    assert worker.hear() == {"code": 0}
    end = new.ask()
    assert end["states"]["held"] == "completed"


def test_what_was_completed_in_1970_is_archived_by_the_jump_and_not_lost(start, tmp_path):
    """Its age is that of the time of day, so it is half a century old all at once."""
    (tmp_path / "done").touch()
    worker = start("worker")
    worker.hear()
    assert worker.hear() == {"code": 0}
    (lease_file,) = (tmp_path / "queue").glob("completed/??/held/lease.json")
    os.utime(lease_file, (60, 60))  # the file system's time was that of 1970, too
    (tmp_path / "jump").touch()
    other = start("other")
    answer = other.ask()
    assert answer["archived"] == 1
    assert "held" not in answer["states"], "a listing leaves the archive out"
    state, result, finished_at = answer["finished"]
    assert (state, result) == ("completed", "held on")
    assert 0 < finished_at < 3_600
