"""Several processes on one folder, forks among them, and kernels that lack something."""

from __future__ import annotations

import json
import os
import re
import signal

import pytest

from dfq._core import shard_of
from dfq.engines.file import FileQueue


def in_child(work):
    """Run ``work`` in a fork of this process; what it returned, or its error."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(read)
            # A deadlock in the child must end the child, not the test run.
            signal.alarm(20)
            answer = json.dumps(work()).encode()
            os.write(write, answer)
            code = 0
        finally:
            os._exit(code)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        answer = pipe.read()
    assert os.waitpid(child, 0)[1] == 0, "the child failed or hung"
    return json.loads(answer)


@pytest.fixture
def queue(tmp_path):
    """With the system's own clock and chance, as a program has them."""
    with FileQueue(tmp_path / "queue") as queue:
        yield queue


def test_a_forked_child_uses_the_queue_and_so_does_its_parent(queue):
    for n in range(20):
        queue.push(n, id=f"t{n}")
    held = queue.claim("parent")

    def work():
        mine = queue.claim_many(5, "child")
        for lease in mine[:4]:
            queue.ack(lease, "by the child")
        queue.nack(mine[4], "not now", delay=0)
        queue.push("hello", id="from-child")
        return [(lease.task_id, lease.lease_id, lease.pid) for lease in mine]

    theirs = in_child(work)
    assert len({pid for _, _, pid in theirs} | {os.getpid()}) == 2
    queue.ack(held, "by the parent")
    mine = queue.claim_many(100, "parent")
    done = {task_id for task_id, _, _ in theirs[:4]} | {held.task_id}
    assert {lease.task_id for lease in mine} | done == {f"t{n}" for n in range(20)} | {"from-child"}
    assert not {lease.task_id for lease in mine} & done


def test_forks_draw_ids_and_nonces_that_nobody_else_draws(queue):
    queue.push_many([queue.new_task(n) for n in range(60)])
    queue.claim("before")

    def draw():
        return [
            *(lease.lease_id for lease in queue.claim_many(5, "w")),
            *(queue.push(1).id for _ in range(5)),
            queue.push(1).correlation_id,
        ]

    drawn = [*in_child(draw), *in_child(draw), *in_child(draw), *draw()]
    assert len(drawn) == 44
    assert len(set(drawn)) == 44


def test_a_task_that_a_fork_held_when_it_ended_is_taken_over(queue):
    queue.push(1, id="a")
    in_child(lambda: queue.claim("child").task_id)
    lease = queue.claim("parent")
    assert (lease.task_id, lease.attempt) == ("a", 2)


def test_a_fork_does_not_let_go_of_its_parents_locks_or_leases(queue):
    queue.push(1, id="a")
    lease = queue.claim("parent")
    assert in_child(lambda: queue.claim("child")) is None
    assert in_child(lambda: FileQueue(queue.path).sweep().expired_leases) == 0
    queue.ack(queue.heartbeat(lease))


def test_a_fork_that_closes_the_queue_does_not_wake_or_blind_its_parent(queue, script):
    assert queue.claim() is None
    in_child(lambda: [queue.close()])
    in_child(lambda: [queue.push(1, id="a").id])
    assert queue.wait(20.0)
    assert queue.claim().task_id == "a"


def test_settling_right_after_a_fork_forgets_nothing(queue):
    queue.push(1, id="a")
    lease = queue.claim("parent")

    def settle():
        queue.ack(lease, "by the child")
        return queue.claim("child")

    assert in_child(settle) is None
    assert queue.get("a").result == "by the child"
    assert queue.claim("parent") is None


WAITER = """
import sys
from dfq.engines.file import FileQueue

queue = FileQueue(sys.argv[1])
assert queue.claim("w") is None
print("watched" if queue.core.is_watched else "polling", flush=True)
for _ in range(100):
    lease = queue.claim("w")
    if lease is not None:
        break
    queue.wait(0.2)
queue.ack(lease)
print(lease.task_id, flush=True)
"""

LIMITS = {
    "no inotify at all": "inotify_init1:error=EMFILE",
    "not one watch": "inotify_add_watch:error=ENOSPC",
    "too few watches": "inotify_add_watch:error=ENOSPC:when=3+",
}


def inject(fault):
    """Options of strace that let one system call fail: ``name:error=…``."""
    return ["-e", f"trace={fault.partition(':')[0]}", "-e", f"inject={fault}"]


@pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS.keys())
def test_without_inotify_a_worker_polls_and_still_sees_new_tasks(queue, script, limit):
    queue.push(1, id="before")
    queue.ack(queue.claim())
    waiter = script(WAITER, queue.path, strace=inject(limit))
    assert waiter.stdout.readline() == "polling\n"
    queue.push(1, id="news")
    assert waiter.stdout.readline() == "news\n"
    assert waiter.wait(20) == 0


@pytest.mark.parametrize("limit", [None, *LIMITS.values()], ids=["inotify", *LIMITS.keys()])
def test_the_first_claim_of_a_worker_takes_over_from_the_dead(queue, script, limit):
    queue.push(1, id="a")
    in_child(lambda: queue.claim("mayfly").task_id)
    source = "import sys, dfq; print(dfq.open(sys.argv[1]).claim('w').task_id)"
    program = script(source, queue.path, strace=None if limit is None else inject(limit))
    assert program.stdout.readline() == "a\n"


def test_with_inotify_a_worker_is_woken_by_a_push_of_another_process(queue, script):
    queue.push(1, id="before")
    queue.ack(queue.claim())
    source = WAITER.replace("queue.wait(0.2)", "queue.wait(60.0)")
    waiter = script(source, queue.path)
    assert waiter.stdout.readline() == "watched\n"
    queue.push(1, id="news")
    assert waiter.stdout.readline() == "news\n"


HOLD_ONE = """
import sys, dfq
lease = dfq.open(sys.argv[1]).claim("holder")
print(lease.task_id, flush=True)
sys.stdin.readline()
"""


def test_what_another_living_process_holds_is_not_taken(queue, script):
    # It is known to live by its number and the moment of its start, as it sees that itself.
    queue.push(1, id="a")
    holder = script(HOLD_ONE, queue.path)
    assert holder.stdout.readline() == "a\n"
    assert [queue.claim() for _ in range(3)] == [None] * 3
    assert queue.sweep().expired_leases == 0


EVERY_VERB = """
import os, sys
from dfq.engines.file import FileQueue
from dfq.errors import LeaseLost

path = sys.argv[1]
queue = FileQueue(path)
queue.push_many([queue.new_task(n, id=f"t{n}") for n in range(8)])
queue.push(1, id="after", depends_on=["t0"], priority="high")
leases = {lease.task_id: lease for lease in queue.claim_many(8, "w")}
assert len(leases) == 8 and queue.claim("w") is None
queue.ack(queue.heartbeat(leases["t0"]), "result")
queue.ack(queue.claim("w"))
queue.nack(leases["t1"], "again", delay=0)
queue.release(leases["t2"])
queue.bury(leases["t3"], "no")
queue.requeue("t3")
queue.cancel("t4")
queue.save_state(leases["t5"], 5)
assert queue.load_state("t5") == 5
try:
    queue.ack(leases["t4"])
except LeaseLost:
    pass
stats = queue.stats()
assert (stats.ready, stats.leased, stats.completed, stats.failed) == (3, 3, 2, 1), stats
queue.sweep()
assert queue.purge("failed") == 1
shard = os.path.join(path, "pending", os.listdir(os.path.join(path, "pending"))[0])
os.symlink(sys.argv[2], os.path.join(shard, "link"))
os.mkdir(os.path.join(shard, "x"))
queue.close()
queue = FileQueue(path)
ready = {lease.task_id for lease in queue.claim_many(9, "w")}
assert ready == {"t1", "t2", "t3"}, ready
assert queue.get("link") is None
assert os.listdir(sys.argv[2]) == []
print("fine", flush=True)
"""

LACKING = {
    "openat2 (old kernel)": "openat2:error=ENOSYS",
    "openat2 (sandbox)": "openat2:error=EPERM",
    "renameat2 (file system)": "renameat2:error=EINVAL",
    "renameat2 (old kernel)": "renameat2:error=ENOSYS",
    "inotify": "inotify_init1:error=ENOSYS",
    "all that QEMU has not": "openat2,clone3,epoll_pwait2,faccessat2,io_uring_setup:error=ENOSYS",
}


@pytest.mark.parametrize("injected", LACKING.values(), ids=LACKING.keys())
def test_every_verb_works_where_the_kernel_lacks_a_call(queue, script, tmp_path, injected):
    (tmp_path / "outside").mkdir()
    trace = tmp_path / "trace"
    strace = [*inject(injected), "-o", str(trace)]
    program = script(EVERY_VERB, queue.path, tmp_path / "outside", strace=strace)
    assert program.stdout.readline() == "fine\n"
    assert program.wait(20) == 0
    made = trace.read_text()
    # A test of a call that nobody makes would prove nothing.
    assert f"{re.split('[,:]', injected)[0]}(" in made and "(INJECTED)" in made


def test_a_symlinked_shard_is_not_followed_where_openat2_is_missing(queue, script, tmp_path):
    outside = tmp_path / "outside"
    (outside / "a").mkdir(parents=True)
    (outside / "a" / "task.json").write_text('"not yours"')
    queue.push(1, id="elsewhere")
    (tmp_path / "queue" / "pending" / shard_of("a")).symlink_to(outside)
    source = (
        "import sys, dfq\n"
        "queue = dfq.open(sys.argv[1])\n"
        "try:\n    print([lease.task_id for lease in queue.claim_many(5)])\n"
        "except dfq.DfqError as error:\n    print(error)\n"
        "print(queue.get('a'))\n"
    )
    program = script(source, queue.path, strace=inject("openat2:error=ENOSYS"))
    assert "'a'" not in program.stdout.readline()
    assert program.stdout.readline() == "None\n"
    assert [p.name for p in (outside / "a").iterdir()] == ["task.json"]


HOLDER = """
import sys, dfq
queue = dfq.open(sys.argv[1])
lease = queue.heartbeat(queue.claim('without proc', lease_seconds=600))
print(lease.task_id, queue.sweep().expired_leases, flush=True)
sys.stdin.readline()
queue.ack(lease)
"""
NO_PROC = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh"]


@pytest.mark.needs_root
def test_a_worker_without_proc_keeps_its_lease_among_workers_that_have_it(queue, script):
    queue.push(1, id="a")
    program = script(HOLDER, queue.path, under=NO_PROC)
    assert program.stdout.readline() == "a 0\n"
    assert queue.claim("other") is None, "its holder lives"
    assert queue.sweep().expired_leases == 0
    program.stdin.write("go\n")
    program.stdin.flush()
    assert program.wait(20) == 0
    assert queue.get("a").state == "completed"


@pytest.mark.needs_root
def test_a_worker_without_proc_respects_the_leases_of_others(queue, script):
    queue.push(1, id="a")
    lease = queue.claim("w")
    source = "import sys, dfq; print(dfq.open(sys.argv[1]).claim('without proc'))"
    program = script(source, queue.path, under=NO_PROC)
    assert program.stdout.readline() == "None\n"
    queue.ack(lease)


@pytest.mark.needs_root
def test_among_workers_without_proc_leases_end_by_time_alone(queue, script):
    queue.push(1, id="a")
    holds = "import sys, dfq; dfq.open(sys.argv[1]).claim('w', lease_seconds={})"
    takes = (
        "import sys, dfq; queue = dfq.open(sys.argv[1])\n"
        "print((queue.claim('other') or queue.claim('other')) is not None)"
    )
    assert script(holds.format(600), queue.path, under=NO_PROC).wait(20) == 0
    assert script(takes, queue.path, under=NO_PROC).stdout.readline() == "False\n"
    queue.purge("leased")
    queue.push(1, id="b")
    assert script(holds.format(0.001), queue.path, under=NO_PROC).wait(20) == 0
    assert script(takes, queue.path, under=NO_PROC).stdout.readline() == "True\n"


@pytest.mark.needs_root
def test_a_worker_in_another_pid_namespace_keeps_its_lease(queue, script):
    queue.push(1, id="a")
    program = script(HOLDER, queue.path, under=["unshare", "--pid", "--fork", "--mount-proc"])
    assert program.stdout.readline() == "a 0\n"
    assert queue.claim("other") is None
    program.stdin.write("go\n")
    program.stdin.flush()
    assert program.wait(20) == 0
