"""A worker process under a supervisor."""

from __future__ import annotations

import os
import threading

import pytest

from dfq.errors import InvalidConfig
from dfq.worker.child import CHILD_VARIABLE, Place, child_options, take_place, watch_supervisor
from dfq.worker.options import WorkerOptions


def test_a_process_knows_from_its_environment_which_child_it_is():
    here = Place(number=2, count=4, pipe=7)
    assert take_place({CHILD_VARIABLE: here.encode()}) == here
    assert take_place({}) is None


def test_what_a_child_starts_is_no_child_of_the_supervisor():
    environment = {CHILD_VARIABLE: "1/2/7", "HOME": "/root"}
    take_place(environment)
    assert environment == {"HOME": "/root"}


def test_an_environment_that_dfq_did_not_set_is_refused():
    with pytest.raises(InvalidConfig, match="only dfq itself sets it"):
        take_place({CHILD_VARIABLE: "yes"})


def test_children_share_the_number_of_tasks():
    options = WorkerOptions(processes=4, max_tasks=6)
    shares = [child_options(options, Place(number, 4, 0)) for number in (1, 2, 3, 4)]
    assert [share.max_tasks for share in shares] == [2, 2, 1, 1]


def test_a_child_for_which_no_task_is_left_has_nothing_to_do():
    options = WorkerOptions(processes=2, max_tasks=1)
    assert child_options(options, Place(2, 2, 0)) is None


def test_children_have_names_and_liveness_files_of_their_own():
    options = WorkerOptions(processes=2, worker_id="pi", health_path="/run/w.json")
    share = child_options(options, Place(2, 2, 0))
    assert (share.worker_id, share.health_path) == ("pi-2", "/run/w.json.2")
    assert share.processes == 1


def test_a_child_notices_that_its_supervisor_is_gone():
    reader, writer = os.pipe()
    gone = threading.Event()
    watch_supervisor(Place(1, 1, reader), gone.set)
    assert not gone.is_set()
    os.close(writer)
    assert gone.wait(20)
    os.close(reader)
