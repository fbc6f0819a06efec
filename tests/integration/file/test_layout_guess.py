"""A folder without queue.json: its layout is guessed once, at its first use, and then holds."""

from __future__ import annotations

import re

import pytest


@pytest.fixture
def drop(folder):
    """What a script does that knows of no shards."""

    def drop(task_id):
        (folder.path / "pending" / task_id).mkdir(parents=True)
        (folder.path / "pending" / task_id / "task.json").write_text('{"url": "x"}')

    return drop


OPENED = {
    "by a claim": lambda queue: queue.claim("w"),
    "by a look": lambda queue: queue.stats(),
    "by a worker that waits": lambda queue: queue.wait(0.0),
    "and only that": lambda queue: queue.core,
}


def look_around(folder, *queues):
    """Claim with every queue, with time for second looks; what was claimed."""
    taken = []
    for _ in range(4):
        for queue in queues:
            taken += [lease.task_id for lease in queue.claim_many(100, lease_seconds=3_600)]
        folder.clock.advance(31)
    for queue in queues:
        queue.sweep()
    return taken


@pytest.mark.parametrize("use", OPENED.values(), ids=OPENED.keys())
def test_a_task_dropped_into_an_open_folder_turns_no_shard_into_rubbish(folder, drop, use):
    service = folder.open()
    folder.path.mkdir()
    use(service)
    drop("job1")
    later = folder.open()
    later.claim()
    assert later.core.is_flat == service.core.is_flat
    pushed = [service.push(n, id=f"a{n}").id for n in range(20)]
    pushed += [later.push(n, id=f"b{n}").id for n in range(20)]
    taken = look_around(folder, later, service, folder.open())
    assert sorted({*taken} - {"job1"}) == sorted(pushed), "no push is lost"
    assert len(taken) == len({*taken})
    shards = [path for path in folder.set_aside() if re.fullmatch(r"pending/[0-9a-f]{2}", path)]
    assert shards == []
    assert folder.open().get("a0").state == "leased"


@pytest.mark.parametrize("use", OPENED.values(), ids=OPENED.keys())
def test_a_task_dropped_where_no_shard_is_does_not_stay_unnoticed(folder, drop, use):
    service = folder.open()
    folder.path.mkdir()
    use(service)
    drop("job1")
    later = folder.open()
    taken = [later.claim(), service.claim()]
    taken = [lease.task_id for lease in taken if lease is not None]
    taken += look_around(folder, later, service)
    noticed = [path for path in folder.set_aside() if "job1" in path]
    assert "job1" in taken or noticed or folder.reports(folder.open(), "job1")


def test_the_guess_outlives_the_process_that_made_it(folder, drop):
    folder.open().stats()
    folder.path.mkdir(exist_ok=True)
    assert folder.open().claim() is None
    folder.close()
    drop("job1")
    assert not folder.open().core.is_flat


def test_a_flat_queue_stays_flat_when_it_is_worked_off(folder, drop):
    drop("job1")
    service = folder.open()
    service.ack(service.claim())
    later = folder.open()
    assert later.claim() is None
    later.push(2, id="job2")
    assert (folder.path / "pending" / "job2" / "task.json").exists()
    assert service.claim().task_id == "job2"
    service.push(3, id="job3")
    assert folder.open().claim().task_id == "job3"
    assert folder.set_aside() == {}


def test_a_guess_is_taken_back_by_a_queue_json(folder, drop):
    assert folder.open().claim() is None
    folder.close()
    (folder.path / "queue.json").write_text('{"layout": "flat"}')
    drop("job1")
    assert folder.open().claim().task_id == "job1"
