"""The figures dfq promises, each a ratio (or a count) taken within one run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benches import bare, idle, peers
from benches.filesystems import Ground
from benches.payloads import payloads
from benches.subjects import (
    drain_bare_seconds,
    drain_dfq_seconds,
    drain_seconds,
    fill_deep,
    interleaved,
)

REPOSITORY = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Plan:
    """How much to measure."""

    rounds: int = 3
    tasks: int = 10_000
    deep: int = 100_000
    one_by_one: int = 2_000
    million: int = 1_000_000
    idle_seconds: float = 60.0
    commands: int = 9
    #: At most this many tasks for a peer.
    peer_tasks: int = 2_000
    #: In a bucket.
    bucket_tasks: int = 500
    shard_records: int = 200_000


QUICK = Plan(
    rounds=1, tasks=3_000, deep=30_000, one_by_one=1_000, million=200_000, idle_seconds=10.0,
    commands=3, peer_tasks=500, bucket_tasks=150, shard_records=50_000,
)  # fmt: skip


@dataclass(frozen=True)
class Figure:
    """One promise and what was measured."""

    what: str
    ground: str
    measured: str
    target: str
    met: bool


def at_least(what: str, ground: Ground, ratio: float, bound: float, detail: str) -> Figure:
    """A ratio that must not be smaller."""
    return Figure(what, ground.name, f"{ratio:.2f}x ({detail})", f"≥ {bound:g}x", ratio >= bound)


def at_most(what: str, ground: Ground, ratio: float, bound: float, detail: str) -> Figure:
    """A ratio that must not be greater."""
    return Figure(what, ground.name, f"{ratio:.2f}x ({detail})", f"≤ {bound:g}x", ratio <= bound)


def _rate(count: int, seconds: float) -> str:
    return f"{count / seconds:,.0f}/s"


def drain_figures(ground: Ground, plan: Plan) -> Iterator[Figure]:
    """Claim + read + ack: against bare system calls, and against the first design."""
    count = plan.tasks
    subjects: dict[tuple[str, int], Callable[[], float]] = {
        ("bare", 1): partial(drain_bare_seconds, ground, count),
        ("many", 1): partial(drain_dfq_seconds, ground, peers.DFQ_MANY, 1, count),
    }
    for processes in (1, 2, 4):
        subjects["dfq", processes] = partial(drain_dfq_seconds, ground, peers.DFQ, processes, count)
        subjects["seed", processes] = partial(drain_seconds, ground, peers.SEED, processes, count)
    seconds = interleaved(subjects, plan.rounds)
    dfq, seed = seconds["dfq", 1], seconds["seed", 1]
    task = f"claim + read + ack of {count:,}, one process"
    bare_rate, dfq_rate = _rate(count, seconds["bare", 1]), _rate(count, dfq)
    for name, took in (("one by one", dfq), ("claim_many(100)", seconds["many", 1])):
        detail = f"{_rate(count, took)} of {bare_rate}"
        ratio = seconds["bare", 1] / took
        yield at_least(f"{task}, {name}, against the bare loop", ground, ratio, 0.7, detail)
    yield at_least(
        f"{task}, one by one, against the first design", ground, seed / dfq, 2.0,
        f"{dfq_rate} against {_rate(count, seed)}",
    )  # fmt: skip
    for processes in (2, 4):
        ours = dfq / seconds["dfq", processes]
        theirs = seed / seconds["seed", processes]
        detail = (
            f"{ours:.2f} times one process, {_rate(count, seconds['dfq', processes])}; "
            f"first design {theirs:.2f} times, {_rate(count, seconds['seed', processes])}"
        )
        what = f"scaling to {processes} processes, against the first design's"
        yield at_least(what, ground, ours / theirs, 1.0, detail)


def cold_claim_figures(ground: Ground, plan: Plan) -> Iterator[Figure]:
    """The first claim of a new process on a deep queue, and what the second one reads."""
    with ground.directory() as path:
        fill_deep(path, plan.deep)
        ground.settle()
        subjects = {
            "dfq": partial(_cold_claim_seconds, path),
            "scan": partial(bare.run, "scan", path, bare.cores()),
            "read": partial(bare.run, "read", path, bare.cores()),
        }
        seconds = interleaved(subjects, max(plan.rounds, 3))
        names, read = seconds["scan"] * 1000, seconds["read"] * 1000
        yield at_most(
            f"cold first claim, {plan.deep:,} pending, against a bare parallel scan", ground,
            seconds["dfq"] / seconds["scan"], 1.5,
            f"{seconds['dfq'] * 1000:.1f} ms; names {names:.1f} ms, names and contents "
            f"{read:.1f} ms",
        )  # fmt: skip
        reads = _directories_read_by_second_claim(path)
        yield Figure(
            f"second claim, {plan.deep:,} pending and unchanged", ground.name,
            f"{reads} directory reads", "0", reads == 0,
        )  # fmt: skip


_COLD_CLAIM = """
import sys, time, dfq
dfq.open(sys.argv[1] + "-not-there").close()
start = time.perf_counter()
queue = dfq.open(sys.argv[1])
lease = queue.claim("cold")
seconds = time.perf_counter() - start
queue.release(lease)
print(seconds)
"""


def _cold_claim_seconds(path: Path) -> float:
    # Opening another queue first loads the engine: the claim is measured, not the import.
    return float(_python(_COLD_CLAIM, str(path)))


_SECOND_CLAIM = """
import os, sys, dfq
queue = dfq.open(sys.argv[1])
first = queue.claim("counted")
os.access("/dfq-bench-marker", os.F_OK)
second = queue.claim("counted")
os.access("/dfq-bench-marker", os.F_OK)
queue.release(first)
queue.release(second)
"""


def _directories_read_by_second_claim(path: Path) -> int:
    trace = path / "trace"
    command = [
        "strace", "-f", "-o", str(trace), "-e", "trace=getdents64,access,faccessat,faccessat2",
        sys.executable, "-c", _SECOND_CLAIM, str(path),
    ]  # fmt: skip
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    _, between, _ = trace.read_text().split("dfq-bench-marker")
    trace.unlink()
    return between.count("getdents64")


def _python(code: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], check=True, stdout=subprocess.PIPE, text=True
    )
    return done.stdout


def push_figures(ground: Ground, plan: Plan) -> Iterator[Figure]:
    """Durable pushes: one sync for the lot against one each."""

    def push_many() -> float:
        return _push_seconds(ground, peers.fill_dfq_many, plan.tasks)

    def push_each() -> float:
        return _push_seconds(ground, peers.fill_dfq, plan.one_by_one) * (
            plan.tasks / plan.one_by_one
        )

    seconds = interleaved({"many": push_many, "each": push_each}, plan.rounds)
    yield at_least(
        f"push_many of {plan.tasks:,}, durable, against push one by one", ground,
        seconds["each"] / seconds["many"], 10.0,
        f"{_rate(plan.tasks, seconds['many'])} against {_rate(plan.tasks, seconds['each'])}",
    )  # fmt: skip


def _push_seconds(
    ground: Ground, fill: Callable[[Path, peers.Payloads], None], count: int
) -> float:
    tasks = payloads(count)
    with ground.directory() as path:
        ground.settle()
        started = time.monotonic()
        fill(path, tasks)
        return time.monotonic() - started


def stats_figures(ground: Ground, plan: Plan) -> Iterator[Figure]:
    """How long `dfq stats` takes, start included."""
    with ground.directory() as path:
        fill_deep(path, plan.tasks)
        stats = [sys.executable, "-m", "dfq", "stats", str(path), "--json"]
        imports = [sys.executable, "-c", "import orjson, click"]
        subjects = {
            "stats": partial(_command_seconds, stats),
            "imports": partial(_command_seconds, imports),
        }
        seconds = interleaved(subjects, plan.commands)
        yield at_most(
            f"`dfq stats` on {plan.tasks:,} tasks, against `python -c 'import orjson, click'`",
            ground, seconds["stats"] / seconds["imports"], 3.0,
            f"{seconds['stats'] * 1000:.0f} ms against {seconds['imports'] * 1000:.0f} ms",
        )  # fmt: skip


def _command_seconds(command: list[str]) -> float:
    # As pip installs it: with its bytecode written.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    started = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    return time.monotonic() - started


def idle_figures(ground: Ground, plan: Plan) -> Iterator[Figure]:
    """A worker with nothing to do."""
    with ground.directory() as path:
        seen = idle.watch(path, plan.idle_seconds)
    yield Figure(
        "idle worker, memory (VmRSS)", ground.name, f"{seen.resident_mb:.1f} MB", "≤ 25 MB",
        seen.resident_mb <= 25,
    )  # fmt: skip
    yield Figure(
        f"idle worker, wake-ups in {plan.idle_seconds:g} s with a safety poll every "
        f"{seen.poll_seconds:g} s", ground.name,
        f"{seen.wakeups} (context switches: {seen.switches})", f"≤ {seen.polls}",
        seen.wakeups <= seen.polls,
    )  # fmt: skip


_DEEP_SCAN = """
import json, sys, time, dfq
def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024
queue = dfq.open(sys.argv[1])
start = time.perf_counter()
lease = queue.claim("million")
seconds = time.perf_counter() - start
print(json.dumps({"seconds": seconds, "megabytes": peak()}))
"""


def memory_figures(ground: Ground, plan: Plan) -> Iterator[Figure]:
    """Peak memory of a process that claims from a very deep queue."""
    with ground.directory() as path:
        fill_deep(path, plan.million)
        seen = json.loads(_python(_DEEP_SCAN, str(path)))
    yield Figure(
        f"{plan.million:,} pending scanned, peak memory (VmHWM)", ground.name,
        f"{seen['megabytes']:.0f} MB, {seen['seconds']:.2f} s", "≤ 150 MB",
        seen["megabytes"] <= 150,
    )  # fmt: skip


#: On which filesystems each is taken. Pushes are only durable on a disk; a million tasks are
#: about memory, and tmpfs makes them soonest.
FIGURES: dict[Callable[[Ground, Plan], Iterator[Figure]], tuple[str, ...]] = {
    drain_figures: ("tmpfs", "ext4"),
    cold_claim_figures: ("tmpfs", "ext4"),
    push_figures: ("ext4",),
    stats_figures: ("tmpfs", "ext4"),
    idle_figures: ("tmpfs",),
    memory_figures: ("tmpfs",),
}


def machine() -> str:
    """What this ran on, in a line."""
    model = "unknown processor"
    with Path("/proc/cpuinfo").open(encoding="utf-8") as lines:
        for line in lines:
            if line.startswith(("model name", "Model")):
                model = line.split(":", 1)[1].strip()
                break
    version = ".".join(map(str, sys.version_info[:3]))
    return f"{bare.cores()} cores ({model}), Linux {os.uname().release}, Python {version}"
