"""A full disk, a read-only disk, a folder that is gone: told by name, nothing lost, and after
it is put right everything works again."""

from __future__ import annotations

import shutil
import subprocess

import orjson
import pytest

from dfq import Policy
from dfq.engines.file import FileQueue
from dfq.errors import DfqError, DiskFull, QueueUnavailable
from dfq.testing import FakeClock

pytestmark = pytest.mark.needs_root

FILL = {"no bytes left": "fill_bytes", "no files left": "fill_names"}
full = pytest.mark.parametrize("fill", FILL.values(), ids=FILL.keys())


class Bench:
    """A queue on a small disk with one task in each state."""

    def __init__(self, disk):
        self.clock = FakeClock()
        self.path = disk.path / "queue"
        self.queue = FileQueue(self.path, clock=self.clock)
        self.queue.push("r", id="ready")
        self.queue.push("f", id="failed")
        self.queue.bury("failed", "to begin with")
        self.queue.push("h", id="held", priority="high")
        self.lease = self.queue.claim("w")
        assert self.lease.task_id == "held"

    def stop(self):
        self.queue.close()


@pytest.fixture
def bench(disk):
    made = Bench(disk)
    yield made
    made.stop()


VERBS = {
    "push": lambda b: b.queue.push("new", id="new"),
    "push with an id that is made": lambda b: b.queue.push("new"),
    "push of a new priority": lambda b: b.queue.push("new", id="new", priority=7),
    "push with a dependency": lambda b: b.queue.push("new", id="new", depends_on=["ready"]),
    "push_many": lambda b: b.queue.push_many(
        [b.queue.new_task("x" * 100, id=f"new{n}") for n in range(50)]
    ),
    "claim": lambda b: b.queue.claim("w"),
    "heartbeat": lambda b: b.queue.heartbeat(b.lease),
    "ack": lambda b: b.queue.ack(b.lease),
    "ack with a result": lambda b: b.queue.ack(b.lease, "result"),
    "nack": lambda b: b.queue.nack(b.lease, "error", delay=0),
    "release": lambda b: b.queue.release(b.lease),
    "bury by lease": lambda b: b.queue.bury(b.lease, "no"),
    "bury by id": lambda b: b.queue.bury("ready", "no"),
    "cancel": lambda b: b.queue.cancel("held", "no"),
    "requeue": lambda b: b.queue.requeue("failed"),
    "save_state": lambda b: b.queue.save_state(b.lease, {"at": 1}),
    "pause": lambda b: b.queue.pause("now"),
    "sweep": lambda b: b.queue.sweep(),
    "purge": lambda b: b.queue.purge("failed"),
}
verbs = pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS.keys())


def states(queue):
    return {record.task.id: record.state for record in queue.list()}


@full
@verbs
def test_a_verb_on_a_full_disk_works_or_says_so_and_works_once_there_is_space(
    disk, bench, verb, fill
):
    before = states(bench.queue)
    getattr(disk, fill)()
    try:
        verb(bench)
        failed = False
    except DiskFull as error:
        failed = True
        assert "free some space" in str(error)
    if failed:
        assert states(bench.queue) == before, "a verb that failed changed nothing"
        assert FileQueue(bench.path, clock=bench.clock).stats().quarantined == 0
    disk.free()
    if failed:
        assert states(bench.queue) == before
        verb(bench)
    assert not list(bench.path.glob("tmp/*")), "nothing is left behind"
    assert work_off(bench)
    assert bench.queue.stats().quarantined == 0


def work_off(bench):
    """Whatever happened: everything pending can be worked off, without help."""
    queue = bench.queue
    queue.resume()
    bench.clock.advance(queue.policy.lease_seconds + 3)
    for _ in range(200):
        lease = queue.claim("w")
        if lease is None:
            break
        queue.ack(lease, "done")
    stats = queue.stats()
    return (stats.pending, stats.completed + stats.failed > 0) == (0, True)


@full
def test_a_claim_that_failed_for_space_leaves_the_task_ready_for_others(disk, bench, fill):
    getattr(disk, fill)()
    with pytest.raises(DiskFull):
        bench.queue.claim("w")
    disk.free()
    other = FileQueue(bench.path, clock=bench.clock)
    assert other.claim("other").task_id == "ready"


@full
def test_looking_needs_no_space(disk, bench, fill):
    getattr(disk, fill)()
    fresh = FileQueue(bench.path, clock=bench.clock)
    assert fresh.stats().leased == 1
    assert fresh.get("held").lease.worker_id == "w"
    assert {f.level for f in fresh.doctor()} >= {"warning"}
    assert any("free" in f.message or "inodes" in f.message for f in fresh.doctor())
    assert fresh.claim_many(0) == []


@full
def test_work_that_is_done_can_be_acked_on_a_full_disk(disk, bench, fill):
    bench.queue.push(1, id="warm")
    bench.queue.ack(bench.lease)
    lease = bench.queue.claim("w")
    # The first completed task of a shard makes its directory; this is about the others.
    (bench.path / "completed").joinpath(
        next(p.parent.name for p in bench.path.glob(f"pending/*/{lease.task_id}"))
    ).mkdir(exist_ok=True)
    getattr(disk, fill)()
    bench.queue.ack(lease)
    assert bench.queue.get(lease.task_id).state == "completed"


def test_a_push_of_many_that_does_not_fit_stores_none_and_leaves_nothing(disk, bench):
    many = [bench.queue.new_task("x" * 2_000, id=f"n{n}") for n in range(900)]
    with pytest.raises(DiskFull):
        bench.queue.push_many(many)
    assert bench.queue.stats().pending == 2
    assert not list(bench.path.glob("tmp/*"))
    bench.queue.push(1, id="fits")


@full
def test_a_queue_can_not_be_made_on_a_full_disk_but_later(disk, fill):
    getattr(disk, fill)()
    queue = FileQueue(disk.path / "fresh", clock=FakeClock())
    try:
        queue.push(1, id="a")
    except DiskFull:
        disk.free()
        queue.push(1, id="a")
    assert queue.claim().task_id == "a"


@full
def test_taking_over_from_the_dead_waits_for_space(disk, bench, fill):
    getattr(disk, fill)()
    bench.clock.advance(bench.queue.policy.lease_seconds + 3)
    for attempt in (bench.queue.sweep, lambda: bench.queue.claim_many(5, "other")):
        try:
            attempt()
        except DiskFull as error:
            assert "free some space" in str(error)
    disk.free()
    bench.queue.sweep()
    other = FileQueue(bench.path, clock=bench.clock)
    leases = {lease.task_id: lease.attempt for lease in other.claim_many(5, "other")}
    assert leases == {"held": 2, "ready": 1}


def test_an_archive_that_does_not_fit_loses_no_task(disk):
    clock = FakeClock()
    path = disk.path / "queue"
    policy = Policy(finished="archive", finished_after_seconds=0)
    queue = FileQueue(path, policy=policy, clock=clock)
    queue.push_many([queue.new_task("x" * 3_000, id=f"t{n}") for n in range(60)])
    for lease in queue.claim_many(60):
        queue.ack(lease)
    disk.fill_bytes()
    with pytest.raises(DiskFull):
        queue.sweep()
    assert all(queue.get(f"t{n}").state == "completed" for n in range(60))
    disk.free()
    queue.sweep()
    assert {record.task.id for record in queue.list("completed")} == set()
    assert [queue.get(f"t{n}").task.payload for n in range(60)] == ["x" * 3_000] * 60
    assert queue.stats().completed == 60, "each counts once"


# A disk that turned read-only

READ_ONLY = """
import json, sys
from dfq.engines.file import FileQueue
from dfq.errors import DfqError

queue = FileQueue(sys.argv[1])
for n in range(20):
    queue.push(n, id=f"t{n}")
queue.push(1, id="failed")
queue.bury("failed", "to begin with")
leases = queue.claim_many(10, "w")
done = queue.claim("w")
queue.ack(done)
print("ready", flush=True)
sys.stdin.readline()
verbs = {
    "push": lambda: queue.push(1, id="new"),
    "push of a new priority": lambda: queue.push(1, id="new", priority=3),
    "push_many": lambda: queue.push_many([queue.new_task(n) for n in range(10)]),
    "claim": lambda: queue.claim("w"),
    "heartbeat": lambda: queue.heartbeat(leases[0]),
    "ack": lambda: queue.ack(leases[1]),
    "ack with a result": lambda: queue.ack(leases[2], "result"),
    "nack": lambda: queue.nack(leases[3], "error"),
    "release": lambda: queue.release(leases[4]),
    "bury": lambda: queue.bury(leases[5], "reason"),
    "cancel": lambda: queue.cancel(leases[6].task_id),
    "save_state": lambda: queue.save_state(leases[7], 1),
    "requeue": lambda: queue.requeue("failed"),
    "purge": lambda: queue.purge("failed"),
    "pause": lambda: queue.pause(),
    "sweep": lambda: queue.sweep(),
    "stats": lambda: queue.stats(),
    "doctor": lambda: [f.message for f in queue.doctor()],
    "get": lambda: queue.get("failed"),
}
for name, verb in verbs.items():
    try:
        answer = [name, "fine", str(verb())]
    except DfqError as error:
        answer = [name, type(error).__name__, str(error)]
    print(json.dumps(answer), flush=True)
"""


@pytest.fixture
def image(tmp_path):
    """A journaled ext4 of our own; the function turns it read-only as a disk error would."""
    path, file = tmp_path / "disk", tmp_path / "image"
    path.mkdir()
    with file.open("wb") as made:
        made.truncate(16 * 1024 * 1024)
    subprocess.run(["mkfs.ext4", "-q", "-F", file], check=True)
    subprocess.run(["mount", "-o", "loop,errors=remount-ro", file, path], check=True)

    class Image:
        root = path

        def break_down(self):
            subprocess.run(["sync", "-f", path], check=True)
            subprocess.run(["mount", "-o", "remount,abort", path], check=True)

        def mend(self):
            subprocess.run(["umount", path], check=True)
            subprocess.run(["mount", "-o", "loop", file, path], check=True)

    yield Image()
    subprocess.run(["umount", "-l", path], check=True)


def test_every_verb_says_that_the_disk_is_read_only_and_nothing_is_lost(image, script):
    child = script(READ_ONLY, image.root / "queue")
    assert child.stdout.readline() == "ready\n"
    image.break_down()
    child.stdin.write("go\n")
    child.stdin.flush()
    answers = {name: (kind, text) for name, kind, text in map(orjson.loads, child.stdout)}
    assert child.wait(30) == 0
    looking = {"stats", "doctor", "get"}
    writing = {name: answer for name, answer in answers.items() if name not in looking}
    assert len(answers) == 19
    # A sweep that finds nothing to do has nothing to write.
    expected = dict.fromkeys(writing, "QueueUnavailable") | {"sweep": writing["sweep"][0]}
    assert {name: kind for name, (kind, _) in writing.items()} == expected
    for name, (kind, text) in writing.items():
        assert kind == "fine" or "read-only" in text.lower(), (name, text)
    assert {answers[name][0] for name in looking} == {"fine"}
    image.mend()
    queue = FileQueue(image.root / "queue")
    for _ in range(100):
        lease = queue.claim("w")
        if lease is None:
            break
        queue.ack(lease)
    stats = queue.stats()
    assert (stats.completed, stats.failed, stats.pending, stats.quarantined) == (20, 1, 0, 0)


def test_a_queue_on_a_read_only_disk_can_be_looked_at(disk, cli):
    assert cli("push", disk.path / "queue", "1", "--id", "a").returncode == 0
    subprocess.run(["mount", "-o", "remount,ro", disk.path], check=True)
    for words in (["stats"], ["ls"], ["show", "a"], ["doctor"]):
        looked = cli(words[0], disk.path / "queue", *words[1:])
        assert b"Traceback" not in looked.stderr
        assert looked.returncode == (1 if words == ["doctor"] else 0), (words, looked.stderr)
        if words == ["doctor"]:
            assert b"read-only" in looked.stdout
    pushed = cli("push", disk.path / "queue", "2")
    assert (pushed.returncode, b"read-only" in pushed.stderr.lower()) == (74, True)


# A folder that is gone


VERBS_THAT_NEED_THE_FOLDER = {
    name: verb
    for name, verb in VERBS.items()
    if name not in ("purge", "requeue", "bury by id", "cancel")
}


@pytest.mark.parametrize(
    "verb", VERBS_THAT_NEED_THE_FOLDER.values(), ids=VERBS_THAT_NEED_THE_FOLDER.keys()
)
def test_a_verb_on_a_deleted_folder_says_that_it_is_gone(disk, bench, verb):
    shutil.rmtree(bench.path)
    with pytest.raises(QueueUnavailable, match="queue"):
        verb(bench)
    assert not bench.path.exists(), "nothing is made behind the user's back"


def test_looking_at_a_deleted_folder_says_that_it_is_gone(bench):
    shutil.rmtree(bench.path)
    for look in (bench.queue.stats, lambda: bench.queue.wait(5.0)):
        with pytest.raises(QueueUnavailable, match="deleted"):
            look()
    try:
        findings = bench.queue.doctor()
    except DfqError as error:
        assert str(bench.path) in str(error)
    else:
        assert any(finding.level != "ok" for finding in findings)


def test_a_folder_that_was_deleted_and_made_again_is_a_new_queue_for_new_handles(bench):
    shutil.rmtree(bench.path)
    other = FileQueue(bench.path, clock=bench.clock)
    other.push(2, id="after")
    assert other.claim("w").task_id == "after"
    with pytest.raises(QueueUnavailable):
        bench.queue.claim("w")


@pytest.mark.parametrize("part", ["lanes", "tmp", "quarantine", "boot.json", "lock"])
def test_derived_state_can_be_deleted_at_any_time(bench, part):
    victim = bench.path / part
    if victim.is_dir():
        shutil.rmtree(victim)
    elif victim.exists():
        victim.unlink()
    bench.queue.push(1, id="after", priority="low")
    fresh = FileQueue(bench.path, clock=bench.clock)
    assert {lease.task_id for lease in fresh.claim_many(9, "w")} == {"ready", "after"}
    bench.queue.ack(bench.lease)


@pytest.mark.parametrize("area", ["completed", "failed", "pending"])
def test_an_area_that_was_emptied_by_hand_is_made_again(bench, area):
    shutil.rmtree(bench.path / area)
    (bench.path / area).mkdir()
    bench.queue.push(1, id="after")
    bench.clock.advance(60)
    taken = [lease.task_id for lease in bench.queue.claim_many(9, "w")]
    assert "after" in taken
    if area != "pending":
        bench.queue.ack(bench.lease)
        assert bench.queue.get("held").state == "completed"
