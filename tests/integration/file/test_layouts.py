"""What a folder may look like: queue.json, the flat layout, bare files, the archive."""

from __future__ import annotations

import orjson
import pytest

from dfq._core import shard_of
from dfq.errors import DfqError, InvalidPolicy, LayoutTooNew, WrongState


@pytest.fixture
def queue_json(folder):
    folder.path.mkdir()

    def write(content):
        data = content if isinstance(content, bytes) else orjson.dumps(content)
        (folder.path / "queue.json").write_bytes(data)

    return write


def test_a_queue_of_a_newer_layout_is_refused_by_name(folder, queue_json, cli):
    queue_json({"dfq": 2, "layout": "sharded"})
    with pytest.raises(LayoutTooNew, match=r"layout 2.*Upgrade dfq"):
        folder.open().push(1)
    told = cli("push", folder.path, "1")
    assert told.returncode == 78
    assert b"Upgrade dfq" in told.stderr


def test_a_newer_layout_is_told_before_its_unknown_keys_are(folder, queue_json):
    queue_json({"dfq": 99, "a_key_of_the_future": True})
    with pytest.raises(LayoutTooNew, match="99"):
        folder.open().push(1)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"hello", b"[]", b"5", b"null", b"\xff", bytes(100), b"[" * 10_000],
    ids=["empty", "torn", "text", "list", "number", "null", "not UTF-8", "NULs", "deep"],
)
def test_a_queue_json_that_is_no_object_is_refused_by_name(folder, queue_json, content):
    queue_json(content)
    with pytest.raises(InvalidPolicy, match=r"queue\.json"):
        folder.open().push(1)
    assert not list(folder.path.glob("pending/*/*"))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"lease_second": 5}, "lease_seconds"),
        ({"max_attempts": "many"}, "max_attempts"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"finished": "burn"}, "keep, archive or drop"),
        ({"retry": {"fctor": 2}}, "factor"),
        ({"layout": "round"}, "sharded"),
        ({"layout": 5}, "layout"),
        ({"dfq": "one"}, "dfq"),
        ({"dfq": -1}, "dfq"),
        ({"lease_seconds": 1, "heartbeat_seconds": 1}, "heartbeat_seconds"),
    ],
    ids=str,
)
def test_a_wrong_key_in_queue_json_is_named_with_what_it_may_be(
    folder, queue_json, settings, words
):
    queue_json({"dfq": 1, **settings})
    with pytest.raises(InvalidPolicy) as error:
        folder.open().push(1)
    assert words in str(error.value)
    assert "queue.json" in str(error.value)


def test_the_policy_in_queue_json_is_obeyed(folder, queue_json, clock):
    queue_json({"dfq": 1, "max_attempts": 1, "lease_seconds": 30})
    queue = folder.open()
    queue.push(1, id="a")
    assert queue.claim().expires_at == clock.wall() + 30
    clock.advance(31)
    queue.sweep()
    assert queue.get("a").state == "failed"


# Flat


@pytest.fixture(params=["by queue.json", "guessed"])
def flat(request, folder):
    """A folder in the layout of the first paper, with one task put by a script."""
    folder.flat = True
    if request.param == "by queue.json":
        folder.path.mkdir()
        (folder.path / "queue.json").write_text('{"layout": "flat"}')
    folder.put("first", '{"url": "https://example.com"}')
    return folder


def test_a_flat_queue_is_worked_off_like_any_other(flat, work_off):
    queue = flat.open()
    assert queue.claim_many(5)[0].task.payload == {"url": "https://example.com"}
    queue.push(2, id="second")
    assert (flat.path / "pending" / "second" / "task.json").exists()
    flat.clock.advance(queue.policy.lease_seconds)
    assert work_off(queue) == ["first", "second"]
    assert (flat.path / "completed" / "first" / "task.json").exists()
    assert queue.stats().completed == 2


def test_every_verb_works_in_a_flat_queue(flat, clock):
    queue = flat.open()
    lease = queue.heartbeat(queue.claim("w"))
    queue.save_state(lease, 7)
    queue.nack(lease, "again", delay=0)
    assert queue.load_state("first") == 7
    queue.bury(queue.claim("w"), "enough")
    assert queue.get("first").state == "failed"
    queue.requeue("first")
    other = flat.open()
    lease = other.claim("other")
    assert (lease.attempt, lease.fence) == (1, 3)
    clock.advance(queue.policy.lease_seconds)
    assert queue.sweep().expired_leases == 1
    queue.cancel("first", "after all")
    assert queue.stats().failed == 1
    assert queue.purge("failed") == 1
    assert queue.get("first") is None


def test_a_completed_file_of_the_first_paper_is_a_completed_task(flat):
    (flat.path / "completed").mkdir()
    (flat.path / "completed" / "old.json").write_text('{"done": true}')
    queue = flat.open()
    assert queue.get("old").state == "completed"
    assert queue.get("old").task.payload == {"done": True}
    assert queue.stats().completed == 1
    assert [record.task.id for record in queue.list("completed")] == ["old"]
    queue.push(1, id="after", depends_on=["old"])
    assert {lease.task_id for lease in queue.claim_many(5)} == {"first", "after"}
    with pytest.raises(DfqError, match="old"):
        queue.push(1, id="old")


def test_a_completed_file_that_appears_later_frees_the_task_that_waits(flat):
    queue = flat.open()
    queue.ack(queue.claim())
    queue.push(1, id="after", depends_on=["old"])
    assert queue.claim() is None
    (flat.path / "completed" / "old.json").write_text("{}")
    flat.clock.advance(31)
    assert queue.claim().task_id == "after"


def test_a_completed_file_of_the_first_paper_can_be_purged_and_swept(flat):
    (flat.path / "completed").mkdir()
    for name in ("one", "two"):
        (flat.path / "completed" / f"{name}.json").write_text("{}")
    queue = flat.open(finished="archive", finished_after_seconds=0)
    queue.sweep()
    assert queue.get("one").state == "completed"
    assert queue.stats().completed == 2
    assert queue.purge("completed") >= 0
    flat.open(finished="drop", finished_after_seconds=0).sweep()


def test_foreign_things_in_a_flat_queue_are_set_aside(flat, tmp_path, work_off):
    (flat.path / "pending" / "link").symlink_to(tmp_path)
    (flat.path / "pending" / "file").write_text("1")
    flat.put("torn", "{")
    queue = flat.open()
    assert work_off(queue) == ["first"]
    assert set(flat.set_aside()) == {"pending/link", "pending/file", "pending/torn"}


def test_an_id_that_looks_like_a_shard_is_a_task_in_a_flat_queue(folder, work_off):
    folder.path.mkdir()
    (folder.path / "queue.json").write_text('{"layout": "flat"}')
    queue = folder.open()
    queue.push(1, id="ab")
    queue.push(1, id="archive")
    assert work_off(queue) == ["ab", "archive"]
    assert queue.get("archive").state == "completed"
    assert queue.stats().completed == 2


def test_a_foreign_file_in_pending_does_not_make_a_sharded_queue_flat(folder, work_off):
    folder.open().push(1, id="a")
    (folder.path / "pending" / "README.txt").write_text("hands off")
    assert work_off(folder.open()) == ["a"]


def test_a_foreign_file_alone_in_pending_does_not_make_a_queue_flat(folder):
    (folder.path / "pending").mkdir(parents=True)
    (folder.path / "pending" / "README.txt").write_text("hands off")
    folder.open().push(1, id="a")
    assert folder.task("a").exists()


# By hand


@pytest.mark.parametrize("content", ['{"a": 1}', "5", "null", '"text"', "[]", " \n{}\n"])
def test_bare_json_put_by_a_script_is_a_task(folder, content):
    queue = folder.open()
    assert queue.claim() is None
    folder.put("bare", content)
    lease = queue.claim()
    assert (lease.task_id, lease.task.payload) == ("bare", orjson.loads(content))
    assert lease.task.priority == 50
    queue.nack(lease, "again", delay=0)
    lease = queue.claim()
    assert (lease.attempt, lease.task.payload) == (2, orjson.loads(content))
    queue.ack(lease, "done")
    assert queue.get("bare").task.payload == orjson.loads(content)


def test_a_byte_order_mark_is_told_not_guessed_at(folder, work_off):
    folder.put("windows", b'\xef\xbb\xbf{"a": 1}')
    queue = folder.open()
    assert work_off(queue) in (["windows"], [])
    assert queue.stats().quarantined + queue.stats().completed == 1


def test_a_task_in_the_wrong_shard_is_set_aside_and_says_where_it_belongs(folder, work_off):
    queue = folder.open()
    queue.push(1, id="fine")
    wrong = "00" if shard_of("lost") != "00" else "01"
    directory = folder.path / "pending" / wrong / "lost"
    directory.mkdir(parents=True)
    (directory / "task.json").write_text("1")
    assert work_off(queue) == ["fine"]
    assert shard_of("lost") in folder.set_aside()[f"pending/{wrong}/lost"]
    (kept,) = folder.path.glob("quarantine/*/lost")
    kept.rename(folder.task("lost").parent.mkdir(exist_ok=True) or folder.task("lost"))
    assert work_off(queue) == ["lost"]


def test_a_task_in_the_wrong_shard_does_not_hide_the_right_one(folder, work_off):
    queue = folder.open()
    queue.push("right", id="twice")
    wrong = "00" if shard_of("twice") != "00" else "01"
    directory = folder.path / "pending" / wrong / "twice"
    directory.mkdir(parents=True)
    (directory / "task.json").write_text('"wrong"')
    queue = folder.open()
    queue.stats()
    queue.sweep()
    assert work_off(queue) == ["twice"]
    assert queue.get("twice").task.payload == "right"


def test_a_shard_name_that_is_none_is_reported_or_left_alone(folder, work_off):
    queue = folder.open()
    queue.push(1, id="a")
    for name in ("zz", "AB", "0", "000", "not a shard"):
        (folder.path / "pending" / name).mkdir()
    assert work_off(folder.open()) == ["a"]


# What is finished


def finish(queue, *ids):
    for task_id in ids:
        queue.push({"n": task_id}, id=task_id)
    while lease := queue.claim("w"):
        queue.ack(lease, {"of": lease.task_id})


def test_archived_tasks_are_found_counted_and_satisfy_dependencies(folder):
    queue = folder.open(finished="archive", finished_after_seconds=0)
    finish(queue, "a", "b", "c")
    assert queue.sweep().archived == 3
    assert not list(folder.path.glob("completed/[0-9a-f][0-9a-f]/*"))
    record = queue.get("b")
    assert (record.state, record.result, record.task.payload) == (
        "completed",
        {"of": "b"},
        {"n": "b"},
    )
    assert record.finished_at is not None
    assert queue.stats().completed == 3
    queue.push(1, id="after", depends_on=["a", "c"])
    assert queue.get("after").state == "ready"
    assert queue.claim().task_id == "after"
    assert queue.sweep().archived == 0


def test_a_task_that_waits_is_freed_though_its_dependency_was_archived_meanwhile(folder):
    queue = folder.open(finished="archive", finished_after_seconds=0)
    queue.push(1, id="first")
    queue.push(1, id="after", depends_on=["first"])
    lease = queue.claim()
    assert queue.claim() is None
    other = folder.open(finished="archive", finished_after_seconds=0)
    other.ack(lease)
    other.sweep()
    assert queue.claim().task_id == "after"


def test_an_archived_task_can_not_be_settled_or_requeued(folder):
    queue = folder.open(finished="archive", finished_after_seconds=0)
    queue.push(1, id="a")
    lease = queue.claim()
    queue.ack(lease)
    queue.sweep()
    with pytest.raises(DfqError, match="a"):
        queue.ack(lease)
    with pytest.raises((WrongState, DfqError), match="a"):
        queue.requeue("a")
    assert queue.stats().completed == 1


def test_payloads_with_every_odd_character_survive_the_archive(folder):
    queue = folder.open(finished="archive", finished_after_seconds=0)
    odd = "".join(map(chr, range(0x20))) + '\x1f\n\r\u2028\U0001f600"\\'
    queue.push({"odd": odd}, id="a")
    queue.ack(queue.claim("worker \u001f".strip("\u001f ")), odd)
    queue.sweep()
    assert queue.get("a").task.payload == {"odd": odd}
    assert queue.get("a").result == odd


def test_a_torn_record_at_the_end_of_the_archive_spoils_only_itself(folder):
    queue = folder.open(finished="archive", finished_after_seconds=0)
    finish(queue, "a")
    queue.sweep()
    (day,) = folder.path.glob("completed/archive/*.usv")
    with day.open("ab") as file:
        file.write(b"torn\x1f2026-")
    finish(queue, "b")
    queue.sweep()
    assert [queue.get(task_id).state for task_id in ("a", "b")] == ["completed"] * 2
    assert queue.get("torn") is None
    assert queue.stats().completed == 2


def test_a_crash_between_archiving_and_deleting_counts_once(folder, tmp_path):
    import shutil

    queue = folder.open(finished="archive", finished_after_seconds=0)
    finish(queue, "a")
    shutil.copytree(folder.task("a", "completed"), tmp_path / "copy")
    queue.sweep()
    shutil.copytree(tmp_path / "copy", folder.task("a", "completed"))
    assert queue.stats().completed == 1
    queue.sweep()
    assert queue.stats().completed == 1
    assert queue.get("a").state == "completed"


def test_dropped_tasks_are_gone_and_kept_ones_stay(folder):
    kept = folder.open(finished="keep", finished_after_seconds=0)
    finish(kept, "a")
    assert kept.sweep().archived == kept.sweep().dropped == 0
    assert kept.get("a").state == "completed"
    dropping = folder.open(finished="drop", finished_after_seconds=0)
    assert dropping.sweep().dropped == 1
    assert dropping.get("a") is None
    assert dropping.stats().completed == 0


def test_tasks_are_not_archived_or_dropped_before_their_time(folder):
    for finished in ("archive", "drop"):
        queue = folder.open(finished=finished, finished_after_seconds=3_600)
        finish(queue, finished)
        queue.sweep()
        assert folder.task(finished, "completed").exists()


def test_failed_tasks_are_never_archived_or_dropped(folder):
    queue = folder.open(finished="drop", finished_after_seconds=0)
    queue.push(1, id="a")
    queue.bury("a", "no")
    queue.sweep()
    assert queue.get("a").state == "failed"


def test_purging_completed_tasks_takes_the_archived_ones_too(folder):
    queue = folder.open(finished="archive", finished_after_seconds=0)
    finish(queue, "a", "b")
    queue.sweep()
    finish(queue, "c")
    assert queue.purge("completed") == 3
    assert queue.stats().completed == 0
