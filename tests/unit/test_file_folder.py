"""A folder becomes a queue by pushing and working, never by looking."""

from __future__ import annotations

import pytest

from dfq.engines.file import FileQueue
from dfq.errors import QueueUnavailable, TaskNotFound
from dfq.record import Stats, SweepReport


@pytest.fixture
def photos(tmp_path):
    """A folder of somebody's own."""
    folder = tmp_path / "photos"
    folder.mkdir()
    (folder / "cat.jpg").touch()
    return folder


@pytest.mark.parametrize(
    ("verb", "answer"),
    [
        (lambda queue: queue.stats(), Stats()),
        (lambda queue: list(queue.list()), []),
        (lambda queue: queue.leases(), []),
        (lambda queue: queue.get("t"), None),
        (lambda queue: queue.load_state("t"), None),
        (lambda queue: queue.purge(), 0),
        (lambda queue: queue.sweep(), SweepReport()),
        (lambda queue: queue.resume(), None),
        (lambda queue: [finding.level for finding in queue.doctor()], ["warning"]),
    ],
    ids=["stats", "list", "leases", "get", "load_state", "purge", "sweep", "resume", "doctor"],
)
def test_a_folder_that_is_no_queue_answers_like_one_that_is_not_there(photos, verb, answer):
    for path in (photos, photos / "nowhere"):
        with FileQueue(path) as queue:
            assert verb(queue) == answer
    assert [path.name for path in photos.iterdir()] == ["cat.jpg"]


@pytest.mark.parametrize("verb", ["requeue", "cancel", "bury"])
def test_a_folder_that_is_no_queue_has_no_task_to_change(photos, verb):
    with FileQueue(photos) as queue, pytest.raises(TaskNotFound, match="has no queue"):
        getattr(queue, verb)("t")
    assert [path.name for path in photos.iterdir()] == ["cat.jpg"]


def test_a_push_makes_the_folder_a_queue_also_for_whoever_looked_before(photos):
    with FileQueue(photos) as looking, FileQueue(photos) as pushing:
        assert looking.stats().ready == 0
        pushing.push(1)
        assert looking.stats().ready == 1


def test_what_stands_in_place_of_the_tasks_is_told_not_taken_for_no_queue(photos):
    (photos / "pending").symlink_to("nowhere")
    with FileQueue(photos) as queue, pytest.raises(QueueUnavailable, match="pending"):
        queue.stats()


@pytest.mark.parametrize("below", [".", "jobs", "jobs/mail"])
def test_a_file_where_the_folder_should_be_is_named(photos, below):
    path = photos / "cat.jpg" / below
    with FileQueue(path) as queue, pytest.raises(QueueUnavailable) as caught:
        queue.push(1)
    assert f"{photos}/cat.jpg is a file, and a queue is a folder" in str(caught.value)
