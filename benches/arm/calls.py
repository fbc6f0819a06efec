"""System calls and bytes, as the emulator itself counts them.

QEMU prints each call of a program that has QEMU_STRACE in its environment. No ptrace is
needed, which it does not have. Two runs that differ in the number of tasks only are taken
apart: what is left is what a task costs, whatever starting Python costs.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent.parent
#: Between these two lines on stderr a program does what is counted.
BEGIN, END = "-- count from here", "-- count up to here"
_CALL = re.compile(r"^\d+ (?P<name>\w+)\((?P<arguments>.*)\) = (?P<result>-?\d+)")
#: How often a thread waits for another is luck; so is what the allocator asks for.
_LUCK = frozenset({"futex", "brk", "mmap", "munmap", "madvise", "mprotect", "sched_yield"})
#: A write to another file than stdout or stderr.
_FILE = re.compile(r"(?![12],)")

_PROGRAM = """
import os, sys
from benches.arm import subjects
verb, path, count = getattr(subjects, sys.argv[1]), sys.argv[2], int(sys.argv[3])
work = verb(path, count)
os.write(2, b"\\n{begin}\\n")
work()
os.write(2, b"\\n{end}\\n")
"""


def per_task(verb: str, few: int, many: int) -> dict[str, float]:
    """Calls by name, and bytes written, for each task that the larger run had more.

    Rounded to a tenth: a queue has 256 shards, and each is made by the first task in it.
    """
    difference = count(verb, many)
    difference.subtract(count(verb, few))
    each = {name: round(calls / (many - few), 1) for name, calls in difference.items()}
    return {name: calls for name, calls in sorted(each.items()) if calls}


def count(verb: str, tasks: int) -> Counter[str]:
    """Calls by name, and bytes written, of one verb on so many tasks."""
    with tempfile.TemporaryDirectory() as path:
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM.format(begin=BEGIN, end=END), verb, path, str(tasks)],
            cwd=REPOSITORY,
            env={**os.environ, "QEMU_STRACE": "1", "PYTHONPATH": str(REPOSITORY)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=300,
        )
    if done.returncode:
        raise AssertionError(f"{verb} ended with {done.returncode}: {done.stderr[-2000:]}")
    return tally(done.stderr)


def tally(trace: str) -> Counter[str]:
    """What stands between the two lines of a trace."""
    _, _, rest = trace.partition(f"\n{BEGIN}\n")
    inside, found, _ = rest.partition(f"\n{END}\n")
    if not found:
        raise AssertionError(f"no counted part in the trace; it ends with {trace[-500:]!r}")
    seen: Counter[str] = Counter()
    for line in inside.splitlines():
        call = _CALL.match(line)
        if call is None or call["name"] in _LUCK:
            continue
        seen[call["name"]] += 1
        if call["name"] == "write" and _FILE.match(call["arguments"]):
            seen["bytes written"] += max(0, int(call["result"]))
    return seen
