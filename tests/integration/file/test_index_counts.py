"""What a verb costs, in system calls: counted, so that the figures can't creep."""

from __future__ import annotations

import re
from collections import Counter

import pytest

# A call that only fails marks where in the trace something begins.
PRELUDE = """
import os, sys
from dfq.engines.file import FileQueue

def mark(name):
    os.access("/dfq-mark/" + name, os.F_OK)

queue = FileQueue(sys.argv[1])
"""
_LINE = re.compile(r"^\d+\s+(\w+)\(")
# Before every close, a debug build asks whether the handle is open.
_DEBUG_CHECK = re.compile(r"fcntl\(\d+, F_GETFD\)")
_MARK = re.compile(r'"/dfq-mark/(\w+)"')


@pytest.fixture
def counted(folder, script, tmp_path):
    """Run a program; the system calls it made after each mark, by mark."""

    def run(source):
        trace = tmp_path / "trace"
        program = script(PRELUDE + source, folder.path, strace=["-o", str(trace)])
        assert program.wait(60) == 0
        counts: dict[str, Counter[str]] = {}
        current: Counter[str] = Counter()
        for line in trace.read_text(errors="replace").splitlines():
            if mark := _MARK.search(line):
                current = counts.setdefault(mark[1], Counter())
            elif (call := _LINE.match(line)) and not _DEBUG_CHECK.search(line):
                current[call[1]] += 1
        return {
            name: Counter({call: n for call, n in calls.items() if call not in _INTERPRETER})
            for name, calls in counts.items()
        }

    return run


#: Memory and threads: what Python does now and then by itself.
_INTERPRETER = {"mmap", "munmap", "brk", "madvise", "mprotect", "futex", "rt_sigaction"}


@pytest.fixture
def filled(folder):
    """300 tasks, in most shards."""
    queue = folder.open()
    queue.push_many([queue.new_task(n, id=f"t{n}") for n in range(300)])
    return queue


def test_a_second_claim_on_an_unchanged_queue_reads_no_directory(filled, counted):
    calls = counted(
        "mark('first'); queue.claim('w'); mark('second'); queue.claim('w')\n"
        "mark('third'); queue.claim('w')\n"
        "mark('many'); queue.claim_many(50, 'w'); mark('end')\n"
    )
    assert calls["first"]["getdents64"] > 0, "the trace sees directories being read"
    assert calls["second"]["getdents64"] == 0
    assert calls["many"]["getdents64"] == 0
    # The second one starts to watch: an inotify watch and one look at the mtime per shard.
    assert calls["second"]["inotify_add_watch"] <= 256 + 3
    assert calls["second"]["newfstatat"] + calls["second"]["statx"] <= 256 + 3
    assert calls["third"].total() <= 15, calls["third"]


def test_a_claim_and_ack_costs_a_few_calls_and_no_more_with_depth(filled, counted):
    calls = counted(
        "for _ in range(3): queue.ack(queue.claim('w'))\n"
        "leases = queue.claim_many(100, 'w')\n"
        "for lease in leases: queue.ack(lease)\n"
        "mark('claim'); leases = queue.claim_many(100, 'w')\n"
        "mark('ack')\n"
        "for lease in leases: queue.ack(lease)\n"
        "mark('end')\n"
    )
    claim, ack = calls["claim"].total() / 100, calls["ack"].total() / 100
    # open, fstat, create, open, read, close, write, fstat, close; and what leases beyond the 64
    # that are kept open cost: a close each
    assert claim <= 10, calls["claim"]
    # lock, stat the lock, stat the lease, stamp, rename, unlock, close; a shard's first one makes
    # its directory; a lease that was not kept open is opened and read
    assert ack <= 9, calls["ack"]
    for name in ("claim", "ack"):
        assert calls[name]["fsync"] == calls[name]["syncfs"] == 0, "only a push is synced"
        assert calls[name]["getdents64"] == 0


def test_one_claim_alone_costs_a_bounded_number_of_calls(filled, counted):
    calls = counted(
        "for _ in range(3): queue.ack(queue.claim('w'))\n"
        "mark('claim'); lease = queue.claim('w'); mark('ack'); queue.ack(lease); mark('end')\n"
    )
    # The batch's calls, and a look at inotify.
    assert calls["claim"].total() <= 11, calls["claim"]
    assert calls["ack"].total() <= 8, calls["ack"]


def test_a_task_pushed_by_another_process_costs_no_scan(filled, counted):
    calls = counted(
        "other = FileQueue(sys.argv[1])\n"
        "while queue.claim_many(100, 'w'): pass\n"
        "other.push(1, id='t0-late')\n"
        "mark('claim'); assert queue.claim('w').task_id == 't0-late'; mark('end')\n"
    )
    assert calls["claim"]["getdents64"] <= 1, calls["claim"]


def test_an_idle_wait_makes_one_poll_however_long_it_lasts(filled, counted):
    calls = counted(
        "while queue.claim_many(100, 'w'): pass\n"
        "queue.wait(0.01)\n"
        "mark('short'); queue.wait(0.01); mark('long'); queue.wait(0.5); mark('end')\n"
    )
    assert calls["short"] == calls["long"]
    polls = calls["long"]["poll"] + calls["long"]["ppoll"]
    assert polls == 1
    # Before it sleeps it looks whether the folder is still there.
    assert calls["long"].total() - polls <= 2, calls["long"]


def test_an_empty_claim_on_a_quiet_queue_reads_no_directory(folder, counted):
    folder.open().push(1, id="a")
    calls = counted(
        "queue.ack(queue.claim('w')); queue.claim('w')\n"
        "mark('empty'); assert queue.claim('w') is None; mark('end')\n"
    )
    assert calls["empty"]["getdents64"] == 0
    assert calls["empty"].total() <= 8, calls["empty"]


def test_push_many_syncs_the_lot_together(folder, counted):
    calls = counted(
        "queue.push(1)\n"
        "lot = [queue.new_task(n) for n in range(200)]\n"
        "mark('one'); queue.push(1); mark('many'); queue.push_many(lot); mark('end')\n"
    )
    assert calls["one"]["fsync"] >= 3
    assert calls["many"]["syncfs"] == 2
    assert calls["many"]["fsync"] == 0
