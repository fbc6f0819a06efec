"""Calls that an emulator, an old kernel or a sandbox lacks: a whole worker does without them."""

from __future__ import annotations

import re

import pytest

#: qemu-user 7.2 answers ENOSYS to these; uvloop and glibc know some of them too.
LACKING = "openat2,clone3,epoll_pwait2,faccessat2,io_uring_setup,fanotify_init"
LIMITED = {
    "no inotify instance left": "inotify_init1:error=EMFILE",
    "no inotify watch left": "inotify_add_watch:error=ENOSPC",
    "inotify refused": "inotify_add_watch:error=EACCES",
}

WORKER = """
import sys
from dfq.cli import main

sys.argv[1:] = ["worker", sys.argv[1], "--handler", "builtins:len", "--drain"]
sys.exit(main())
"""
#: Its loop is libuv's, which asks for more than dfq does.
COROUTINES = """
import asyncio, sys, types
from dfq.cli import main

async def measure(payload):
    await asyncio.sleep(0)
    assert type(asyncio.get_running_loop()).__module__ == "uvloop"
    return len(payload)

sys.modules["handlers"] = types.ModuleType("handlers")
sys.modules["handlers"].measure = measure
words = ["--handler", "handlers:measure", "--concurrency", "4", "--drain"]
sys.argv[1:] = ["worker", sys.argv[1], *words]
sys.exit(main())
"""


@pytest.mark.parametrize("program", [WORKER, COROUTINES], ids=["functions", "coroutines"])
@pytest.mark.parametrize("limit", [None, *LIMITED.values()], ids=["emulator", *LIMITED])
def test_a_worker_does_its_work_where_calls_are_missing(folder, script, tmp_path, limit, program):
    queue = folder.open()
    queue.push_many([queue.new_task([n] * n, id=f"t{n}") for n in range(20)])
    trace = tmp_path / "trace"
    faults = [f"{LACKING}:error=ENOSYS"] if limit is None else [limit]
    traced = ",".join(fault.partition(":")[0] for fault in faults)
    injected = [f"--inject={fault}" for fault in faults]
    worker = script(program, folder.path, strace=[f"--trace={traced}", *injected, "-o", str(trace)])
    assert worker.wait(60) == 0
    assert "INJECTED" in trace.read_text()
    if program is COROUTINES and limit is None:
        refused = r"io_uring_setup\(.*\(INJECTED\)"
        assert re.search(refused, trace.read_text()), "libuv asks for it and does without"
    stats = queue.stats()
    assert (stats.completed, stats.failed) == (20, 0)
    assert queue.get("t7").result == 7


def test_nothing_asks_for_a_call_that_only_new_kernels_have(folder, script, tmp_path):
    # Whoever adds one also has to say here what becomes of it on an older kernel.
    known = {"openat2", "clone3", "close_range", "faccessat2", "pidfd_open", "rseq", "statx"}
    queue = folder.open()
    queue.push_many([queue.new_task([n] * n) for n in range(20)])
    trace = tmp_path / "trace"
    worker = script(WORKER, folder.path, strace=["-o", str(trace)])
    assert worker.wait(60) == 0
    called = set(re.findall(r"^\d+ +(\w+)\(", trace.read_text(), re.MULTILINE))
    assert "openat2" in called
    newer = {
        "io_uring_setup", "io_uring_enter", "pidfd_getfd", "epoll_pwait2", "fanotify_init",
        "process_madvise", "futex_waitv", "memfd_secret", "landlock_create_ruleset", "cachestat",
        "fchmodat2", "statmount", "listmount", "map_shadow_stack", "mseal",
    }  # fmt: skip
    assert called & (newer | known) <= known
