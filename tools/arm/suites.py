"""Run the core of the tests, or the benchmarks, in the arm64 tree."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from tools.arm import guest
from tools.arm.places import Suite, cache
from tools.arm.shell import Failed, say

_PYTEST = ("python3", "-m", "pytest", "-p", "no:cacheprovider", "-q")
_DEMO = ("python3", "-m", "dfq", "demo", "--quiet")
#: The emulator is slow at some things: a test that takes 4 s may take 60.
_TIMEOUT_OF_A_TEST = 400
#: How much longer tests wait there for other processes (tests/patience.py).
_TIMES_SLOWER = 6


def out(suite: Suite) -> Path:
    """Where a run leaves its logs and figures."""
    path = cache() / "out" / suite.name
    path.mkdir(parents=True, exist_ok=True)
    return path


def test(suite: Suite, core: tuple[str, ...], on: str, *, seconds: float) -> int:
    """The core, by as many pytests at once as there are processors; 0 if all pass."""
    started = time.monotonic()
    # Whether it works at all; and what a worker imports is then compiled, before processes that
    # the tests wait for all begin with compiling the same.
    if guest.run(suite, _DEMO, seconds=seconds, shared=out(suite)):
        raise Failed("`dfq demo` does not work in the tree; see above")
    command = [
        *_PYTEST, "-p", "tools.arm.core", "-n", "auto", "--dist", "worksteal",
        f"--timeout={_TIMEOUT_OF_A_TEST}", "--benchmark-disable", "--durations=25",
        "--junit-xml=/out/tests.xml", *core,
    ]  # fmt: skip
    settings = {"DFQ_TEST_PATIENCE": str(_TIMES_SLOWER), "DFQ_TEST_ON": on}
    code = guest.run(suite, command, seconds=seconds, shared=out(suite), env=settings)
    said = f"FAILS with {code}" if code else "passes"
    say(f"the core {said} on {suite.name} in {time.monotonic() - started:.0f} s")
    return code


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
