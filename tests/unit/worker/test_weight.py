"""An idle worker is small: it does not import what it does not need."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.patience import patience


@pytest.mark.parametrize("heavy", ["asyncio", "subprocess", "ssl", "uvloop", "rich"])
def test_a_worker_of_plain_functions_does_not_import(heavy):
    source = (
        "import sys\n"
        f"sys.path[:] = {sys.path!r}\n"
        "from dfq.testing import memory_queue\n"
        "from dfq.worker import WorkerOptions, functions, run\n"
        "queue = memory_queue()\n"
        "queue.push(1)\n"
        "code = run(queue, functions(lambda payload: payload), WorkerOptions(drain=True))\n"
        f"sys.exit(code or {heavy!r} in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, timeout=patience(60))
    assert done.returncode == 0, done.stderr
