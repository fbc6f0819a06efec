"""The processor time of a task, in programs as people run them: ``python -m benches.processor``.

Each is run with no task and with many; the difference is what the tasks took. Time in the kernel
counts, time of waiting does not. The queue is in memory, or where an argument says.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median

TASKS, TIMES = 5_000, 3
_OPEN = "import dfq, sys; queue, count = dfq.open(sys.argv[1]), int(sys.argv[2]); queue.push(0); "
_TASK = "{'text': 'x' * 180}"
PUSH = f"{_OPEN}\nfor _ in range(count): queue.push({_TASK})"
PUSH_MANY = f"{_OPEN}\nif count: queue.push_many([queue.new_task({_TASK}) for _ in range(count)])"
HANDLER = "def work(payload):\n    return {'letters': len(payload['text'])} if payload else 0\n"
COROUTINE = f"async {HANDLER}"


def measured(command: list[str], **options: object) -> float:
    """The seconds that a program made processors work."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True, **options)  # type: ignore[call-overload]
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def once(below: Path, count: int) -> Iterator[tuple[str, float]]:
    """What each program takes for so many tasks."""
    folder = below / "queue"
    (below / "functions.py").write_text(HANDLER)
    (below / "coroutines.py").write_text(COROUTINE)
    worker = [sys.executable, "-m", "dfq", "worker", str(folder), "--drain", "--quiet", "--handler"]
    environment = {**os.environ, "PYTHONPATH": f"{below}:{os.environ.get('PYTHONPATH', '')}"}
    for how, source in (("push", PUSH), ("push_many", PUSH_MANY)):
        for handler in ("functions", "coroutines"):
            shutil.rmtree(folder, ignore_errors=True)
            pushed = measured([sys.executable, "-c", source, str(folder), str(count)])
            worked = measured([*worker, f"{handler}:work"], env=environment)
            yield how, pushed
            yield f"worker, {handler}", worked


def main() -> None:
    """Print the milliseconds of each."""
    taken: dict[tuple[str, int], list[float]] = {}
    where = sys.argv[1] if len(sys.argv) > 1 else "/dev/shm"
    with tempfile.TemporaryDirectory(prefix="dfq-processor-", dir=where) as below:
        for count in (0, TASKS) * TIMES:
            for name, seconds in once(Path(below), count):
                taken.setdefault((name, count), []).append(seconds)
    for name in dict.fromkeys(name for name, _ in taken):
        start = median(taken[name, 0])
        each = (median(taken[name, TASKS]) - start) / TASKS
        print(f"{name:20} {each * 1e3:.3f} ms a task, and {start * 1e3:.0f} ms to start")


if __name__ == "__main__":
    main()
