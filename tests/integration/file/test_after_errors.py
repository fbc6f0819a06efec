"""A call that failed once: what it was about is found when the trouble is over, by the same
queue object, and what was won before is handed out."""

from __future__ import annotations

import json

import pytest

PRELUDE = """
import json, os, sys
from dfq.engines.file import FileQueue
from dfq.errors import DfqError
from dfq.testing import FakeClock

path, clock = sys.argv[1], FakeClock()
handed_out = []

def take(worker, **options):
    try:
        leases = worker.claim_many(1_000, "w", lease_seconds=1e6, **options)
    except DfqError as error:
        return str(error)
    handed_out.extend((lease.task_id, lease.attempt) for lease in leases)

def take_later(worker):
    for _ in range(4):
        clock.advance(31)
        error = take(worker)
        assert error is None, error

def forbid(part, mode=0):
    os.chmod(os.path.join(path, part), mode)
    return lambda: os.chmod(os.path.join(path, part), 0o700)

def is_refused(call, *arguments):
    try:
        call(*arguments)
    except PermissionError:
        return True
    return False
"""


@pytest.fixture
def run(script, folder, held_to_permissions):
    """Run the source, bound by file modes; what it printed as JSON."""

    def run(source, *arguments):
        process = script(PRELUDE + source, folder.path, *arguments, under=held_to_permissions)
        answer = process.stdout.read()
        assert process.wait(60) == 0
        return json.loads(answer)

    return run


UNREADABLE_SHARD = """
pusher = FileQueue(path, clock=clock)
worker = FileQueue(path, clock=clock)
if sys.argv[2] == "a later look":
    assert worker.claim() is None and worker.claim() is None
pusher.push_many(pusher.new_task(n, id=f"t{n}") for n in range(600))
shard = os.path.join("pending", sorted(os.listdir(os.path.join(path, "pending")))[0])
allow = forbid(shard)
assert is_refused(os.listdir, os.path.join(path, shard))
clock.advance(31)
take(worker)
allow()
take_later(worker)
print(json.dumps([handed_out, worker.stats().ready]))
"""


@pytest.mark.parametrize("look", ["the first look", "a later look"])
def test_a_shard_that_could_not_be_read_hides_no_task_for_good(run, look):
    handed_out, ready = run(UNREADABLE_SHARD, look)
    assert sorted(handed_out) == sorted([f"t{n}", 1] for n in range(600))
    assert ready == 0


STALE_LEASES = """
taken, told = os.pipe()
until, end = os.pipe()
holder = os.fork()
if holder == 0:
    os.close(end)
    queue = FileQueue(path, clock=clock)
    queue.push_many(queue.new_task(n, id=f"t{n}") for n in range(50))
    queue.claim_many(100, "mayfly")
    os.write(told, b"!")
    os.read(until, 1)
    os._exit(0)
os.read(taken, 1)
worker = FileQueue(path, clock=clock)
if sys.argv[2] == "seen alive":
    assert take(worker) is None and take(worker) is None and not handed_out
    clock.advance(6)
os.close(end)
os.waitpid(holder, 0)
allow = forbid("tmp")
errors = [take(worker), take(worker)]
allow()
take_later(worker)
print(json.dumps([handed_out, errors]))
"""


@pytest.mark.parametrize("holder", ["seen alive", "never seen alive"])
def test_an_error_while_stale_leases_are_ended_loses_none_of_them(run, holder):
    handed_out, errors = run(STALE_LEASES, holder)
    assert any(error and "Permission denied" in error for error in errors)
    assert sorted(handed_out) == sorted([f"t{n}", 2] for n in range(50))


WON_BEFORE = """
queue = FileQueue(path, clock=clock)
queue.push_many(queue.new_task(n, id=f"t{n}") for n in range(30))
queue.push("later", id="later", depends_on=["first"])
worker = FileQueue(path, clock=clock)
for _ in range(2):
    lease = worker.claim("w", lease_seconds=1e6)
    handed_out.append((lease.task_id, lease.attempt))
allow = forbid("completed", 0o500)
assert is_refused(os.mkdir, os.path.join(path, "completed", "probe"))
for _ in range(5):
    take(worker)
leased = [lease.task_id for lease in queue.leases()]
in_trouble = [task_id for task_id, _ in handed_out]
allow()
queue.push("first", id="first")
take(worker)
for lease in queue.leases():
    if lease.task_id == "first":
        worker.ack(lease)
take_later(worker)
print(json.dumps([in_trouble, leased, [task_id for task_id, _ in handed_out]]))
"""


def test_an_error_after_a_win_drops_neither_what_was_won_nor_what_failed(run):
    in_trouble, leased, in_the_end = run(WON_BEFORE)
    assert sorted(in_trouble) == sorted(leased), "a lease that nobody was handed blocks its task"
    assert sorted(in_the_end) == sorted([*(f"t{n}" for n in range(30)), "first", "later"])


UNREADABLE_TASK = """
queue = FileQueue(path, clock=clock)
queue.push_many(queue.new_task(n, id=f"t{n}") for n in range(30))
(bad,) = [
    os.path.join("pending", shard, "t7")
    for shard in os.listdir(os.path.join(path, "pending"))
    if os.path.exists(os.path.join(path, "pending", shard, "t7"))
]
allow = forbid(bad)
worker = FileQueue(path, clock=clock)
# Each claim may run into it first; by chance, not always.
errors = [take(worker) for _ in range(300)]
leased = sum("lease.json" in files for _, _, files in os.walk(path))
in_trouble = len(handed_out)
allow()
take_later(worker)
print(json.dumps([errors, in_trouble, leased, handed_out, worker.stats().quarantined]))
"""


def test_a_task_that_can_not_be_opened_for_a_while_is_in_nobodys_way(run):
    errors, in_trouble, leased, handed_out, quarantined = run(UNREADABLE_TASK)
    assert (in_trouble, leased) == (29, 29)
    assert any(error and "t7" in error for error in errors), "it is told, by name"
    assert sorted(handed_out) == sorted([f"t{n}", 1] for n in range(30))
    assert quarantined == 0
