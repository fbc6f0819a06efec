"""A worker fits into a small Pi, and is as large after months as after a minute."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]
#: What `docs/raspberry-pi.md` says of an idle worker, in MB.
IDLE_MB = 25
#: The worker's cases of the suite: in threads, as coroutines, in several processes.
CASES = ("tests/integration/test_worker.py", "tests/unit/worker/test_processes.py")

LONG_LIFE = """
import json, sys
import dfq
from dfq.worker import WorkerOptions, functions, run

url, lot, lots = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
queue = dfq.open(url)
sizes, done = [], 0


def resident_kb():
    with open("/proc/self/status") as status:
        (line,) = [line for line in status if line.startswith("VmRSS")]
    return int(line.split()[1])


def push():
    queue.push_many([queue.new_task({"n": n, "text": "x" * 100}) for n in range(lot)])


def handle(payload):
    global done
    done += 1
    if done % lot == 0:
        sizes.append(resident_kb())
        if done < lot * lots:
            push()
    return {"n": payload["n"]}


push()
import logging
logging.getLogger("dfq").setLevel("WARNING")
code = run(queue, functions(handle), WorkerOptions(drain=True))
print(json.dumps({"code": code, "sizes": sizes}))
"""


def limited(*command, memory_mb):
    return subprocess.run(
        [sys.executable, "-m", "tests.pi_limits", "--memory-mb", str(memory_mb), "--", *command],
        cwd=REPOSITORY,
        # It runs beside the other tests, in processes of its own: what is slow is not stuck.
        env={**os.environ, "DFQ_TEST_PATIENCE": "4"},
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )


def test_the_limit_holds():
    """Or else the test below shows nothing."""
    eats = "x = bytearray(300 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1\n"
    assert limited(sys.executable, "-c", "x = bytearray(10 << 20)", memory_mb=256).returncode == 0
    assert limited(sys.executable, "-c", eats, memory_mb=256).returncode != 0


@pytest.mark.timeout(600)
def test_the_cases_of_the_worker_pass_with_the_memory_of_a_small_pi():
    ran = limited(
        *(sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *CASES),
        memory_mb=1_024,
    )
    assert ran.returncode == 0, ran.stdout[-5_000:] + ran.stderr
    assert re.search(r"\d+ passed", ran.stdout)


def test_an_idle_worker_is_small(tmp_path, environment):
    worker = subprocess.Popen(
        [sys.executable, "-m", "dfq", "worker", tmp_path / "queue", "--exec", "cat"],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        lines = iter(worker.stderr.readline, "")
        assert any("works on" in line for line in lines)
        # When it has done its first task, everything it will ever need is loaded.
        push = [sys.executable, "-m", "dfq", "push", tmp_path / "queue", "1"]
        subprocess.run(push, env=environment, check=True, capture_output=True)
        assert any("completed in" in line for line in lines)
        status = Path(f"/proc/{worker.pid}/status").read_text()
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.communicate(timeout=30)
    resident_mb = int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) / 1024
    print(f"an idle worker has {resident_mb:.1f} MB")
    assert resident_mb <= IDLE_MB


@pytest.mark.timeout(300)
def test_a_worker_does_not_grow_over_ten_thousand_tasks(tmp_path, environment):

    ran = subprocess.run(
        [sys.executable, "-c", LONG_LIFE, tmp_path / "queue", "1000", "13"],
        env={**environment, "MALLOC_ARENA_MAX": "2"},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    assert told["code"] == 0
    warm, *_, last = told["sizes"][2:]
    print(f"resident, in KB, after every 1,000 tasks: {told['sizes']}")
    assert last <= warm * 1.02, told["sizes"]
