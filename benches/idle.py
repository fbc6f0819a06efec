"""An idle worker, watched from outside: its memory, and how often it wakes."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
POLL_SECONDS = 5.0
_STARTING_SECONDS = 3.0

#: Calls a thread sleeps in; each return from one is a wake-up.
_SLEEPS = (
    "epoll_wait,epoll_pwait,epoll_pwait2,poll,ppoll,select,pselect6,futex,nanosleep,"
    "clock_nanosleep,rt_sigtimedwait,read"
)
_WOKE = re.compile(
    r"^\d+ +(?P<at>\d+\.\d+) (?:<\.\.\. )?"
    r"(?:epoll_|p?poll|p?select|nanosleep|clock_nanosleep|rt_sigtimedwait"
    r"|futex\(.*_WAIT|futex resumed)"
)
#: Threads that wake within this time of each other wake the machine once.
_BURST_SECONDS = 0.05


def handle(payload: object) -> None:
    """The handler the idle worker never gets to call."""


@dataclass(frozen=True)
class Idle:
    """What was seen of a worker with nothing to do."""

    resident_mb: float
    peak_mb: float
    #: Times it woke; threads that wake one another at one moment count as one.
    wakeups: int
    #: Times its threads, taken together, gave up the processor.
    switches: int
    poll_seconds: float
    #: Safety polls that were due in that time, the edges included.
    polls: int


def watch(path: Path, seconds: float) -> Idle:
    """Start a worker on an empty queue and watch it, in two turns: quietly, then traced."""
    import dfq

    path.joinpath("queue.json").write_text(json.dumps({"safety_poll_seconds": POLL_SECONDS}))
    with dfq.open(path) as queue:
        assert queue.policy.safety_poll_seconds == POLL_SECONDS
        queue.push({"n": 0})
        lease = queue.claim("filler")
        assert lease is not None
        queue.ack(lease)
    command = [
        sys.executable, "-m", "dfq", "worker", str(path), "--handler", "benches.idle:handle",
    ]  # fmt: skip
    with tempfile.TemporaryFile() as log:
        worker = subprocess.Popen(command, cwd=REPOSITORY, stdout=log, stderr=log)
        try:
            time.sleep(_STARTING_SECONDS)
            # In two turns: a tracer switches contexts itself.
            before = _switches(worker.pid)
            time.sleep(seconds)
            switches = _switches(worker.pid) - before
            wakeups = _traced_wakeups(worker.pid, seconds)
            seen = status(Path(f"/proc/{worker.pid}/status"))
        except OSError as error:
            worker.wait(10)
            log.seek(0)
            raise RuntimeError(f"the worker ended: {log.read().decode()}") from error
        finally:
            worker.send_signal(signal.SIGTERM)
            worker.wait(30)
    return Idle(
        resident_mb=seen["VmRSS"] / 1024,
        peak_mb=seen["VmHWM"] / 1024,
        wakeups=wakeups,
        switches=switches,
        poll_seconds=POLL_SECONDS,
        polls=int(seconds / POLL_SECONDS) + 1,
    )


def status(path: Path) -> dict[str, int]:
    numbers = {}
    for line in path.read_text().splitlines():
        name, _, rest = line.partition(":")
        first = rest.split()
        if first and first[0].isdigit():
            numbers[name] = int(first[0])
    return numbers


def _switches(pid: int) -> int:
    return sum(
        status(task / "status")["voluntary_ctxt_switches"]
        for task in Path(f"/proc/{pid}/task").iterdir()
    )


def _traced_wakeups(pid: int, seconds: float) -> int:
    if shutil.which("strace") is None:
        raise RuntimeError("counting wake-ups needs strace; install it, then run this again")
    with tempfile.NamedTemporaryFile("r", suffix=".strace") as trace:
        options = ["-f", "-qq", "-ttt", "-o", trace.name, "-e", f"trace={_SLEEPS}"]
        tracer = subprocess.Popen(["strace", *options, "-p", str(pid)], stderr=subprocess.DEVNULL)
        time.sleep(seconds)
        tracer.send_signal(signal.SIGINT)
        tracer.wait(30)
        moments = sorted(moment for line in trace if (moment := _moment(line)) is not None)
    bursts, last = 0, float("-inf")
    for moment in moments:
        bursts += moment - last > _BURST_SECONDS
        last = moment
    return bursts


def _moment(line: str) -> float | None:
    """When a sleep ended, by a line of strace; not if the tracer itself ended it."""
    if any(word in line for word in ("<unfinished", "<detached", "ERESTART", "EINTR")):
        return None
    found = _WOKE.match(line)
    return float(found["at"]) if found else None
