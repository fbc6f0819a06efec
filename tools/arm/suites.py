"""Run the core of the tests, or the benchmarks, in the arm64 tree."""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tools.arm import guest
from tools.arm.places import Suite, cache
from tools.arm.shell import Failed, say

_PYTEST = ("python3", "-m", "pytest", "-p", "no:cacheprovider", "-q")
#: The emulator is slow at some things: a test that takes 4 s may take 60.
_TIMEOUT_OF_A_TEST = 300


def out(suite: Suite) -> Path:
    """Where a run leaves its logs and figures."""
    path = cache() / "out" / suite.name
    path.mkdir(parents=True, exist_ok=True)
    return path


def test(suite: Suite, lanes: tuple[tuple[str, ...], ...], *, seconds: float) -> int:
    """Each lane is one pytest, all at once; 0 if all pass."""
    started = time.monotonic()

    def run(number: int) -> int:
        command = [
            *_PYTEST, "-p", "tools.arm.core", f"--timeout={_TIMEOUT_OF_A_TEST}",
            "--durations=25", *lanes[number],
        ]  # fmt: skip
        return guest.run(
            suite, command, seconds=seconds, shared=out(suite), log=_log(suite, number)
        )

    with ThreadPoolExecutor(len(lanes)) as pool:
        runs = [pool.submit(run, number) for number in range(len(lanes))]
    codes = []
    for number, run_ in enumerate(runs):
        sys.stdout.write(_log(suite, number).read_text())
        failure = run_.exception()
        if isinstance(failure, Failed):
            say(str(failure))
        elif failure is not None:
            raise failure
        codes.append(1 if failure is not None else run_.result())
    said = "passes" if not any(codes) else "FAILS"
    say(f"the core {said} on {suite.name} in {time.monotonic() - started:.0f} s")
    return max(codes)


def _log(suite: Suite, lane: int) -> Path:
    return out(suite) / f"lane-{lane}.log"


def bench(suite: Suite, *, seconds: float) -> dict[str, Any]:
    """What pytest-benchmark measured: processor time, as others use this machine too."""
    command = [
        *_PYTEST, "benches/arm", "--benchmark-timer=time.process_time",
        "--benchmark-json=/out/benchmark.json",
        "--benchmark-columns=min,median,max,rounds",
    ]  # fmt: skip
    code = guest.run(suite, command, seconds=seconds, shared=out(suite))
    if code:
        raise Failed(f"the benchmarks ended with {code}; see above")
    measured: dict[str, Any] = json.loads((out(suite) / "benchmark.json").read_text())
    return measured
