"""A writer or a compiler of the acceptance test, as a process of its own.

child.py write URL NAME SECONDS   puts records; a line to stdout for each that is put for sure
child.py compile URL NAME SECONDS compiles again and again
"""

from __future__ import annotations

import sys
import threading

from dfq import Index
from dfq.ambient import SYSTEM_CHANCE, SYSTEM_CLOCK
from dfq.compiler.passes import Bounds
from dfq.errors import QueueBusy, QueueUnavailable

#: Few keys, so that writers and compilers meet.
KEYS = 40
#: The locks of the dead are over soon, and some of the living, too.
BOUNDS = Bounds(lock_seconds=3)


def write(index: Index, name: str, until: float) -> None:
    number = 0
    while SYSTEM_CLOCK.boot() < until:
        number += 1
        key = f"{SYSTEM_CHANCE.bits(16) % KEYS}.example"
        city = f"{name}-{number}"
        deleted = SYSTEM_CHANCE.bits(3) == 0
        (row,) = index.rows([{"domain": key, "city": city}])
        if deleted:
            row[-1] = row[-2]
        try:
            index.put_rows([row])
        except (QueueUnavailable, QueueBusy):
            continue
        sys.stdout.write("\x1f".join(row) + "\n")
        sys.stdout.flush()


def compile(index: Index, until: float) -> None:
    pause = threading.Event()
    while SYSTEM_CLOCK.boot() < until:
        try:
            report = index.compile(bounds=BOUNDS)
        except (QueueUnavailable, QueueBusy):
            continue
        if not report.files:
            pause.wait(SYSTEM_CHANCE.uniform(0.0, 0.05))


def main() -> None:
    verb, url, name, seconds = sys.argv[1:]
    while True:
        try:
            index = Index(url, worker_id=name)
            break
        except (QueueUnavailable, QueueBusy):
            continue
    print("ready", flush=True)
    until = SYSTEM_CLOCK.boot() + float(seconds)
    if verb == "write":
        write(index, name, until)
    else:
        compile(index, until)


if __name__ == "__main__":
    main()
