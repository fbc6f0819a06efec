"""complete_tasks.py FOLDER LOG: claim and ack until standard input ends, which says that all is
pushed, and nothing is left; one line of the log for each ack that was accepted."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from dfq.engines.file import FileQueue

everything_is_pushed = threading.Event()


def listen() -> None:
    sys.stdin.read()
    everything_is_pushed.set()


threading.Thread(target=listen, daemon=True).start()
queue = FileQueue(sys.argv[1])
with Path(sys.argv[2]).open("w") as log:
    while True:
        last_look = everything_is_pushed.is_set()
        leases = queue.claim_many(16)
        for lease in leases:
            queue.ack(lease, lease.fence)
            print(lease.task_id, lease.fence, file=log)
        if not leases:
            if last_look:
                break
            queue.wait(0.1)
