"""Make one verb, slowly: a test stops this process at one of its system calls.

    stop_and_go.py FOLDER VERB

Standard output: a line of JSON with what came of it.
"""

from __future__ import annotations

import json
import os
import sys

from dfq import DfqError
from dfq.engines.file import FileQueue
from dfq.testing import SeededChance

folder, verb = sys.argv[1:]
queue = FileQueue(folder, chance=SeededChance(3))
queue.get("target")
lease = queue.claim("slow", lease_seconds=600) if verb == "ack" else None
os.getpgid(0)
try:
    if verb == "claim":
        claimed = queue.claim("slow")
        print(json.dumps({"claimed": claimed and claimed.fence}))
    elif verb == "ack":
        assert lease is not None
        queue.ack(lease, "slow")
        print(json.dumps({"acked": lease.fence}))
    elif verb == "push":
        queue.push({"by": "slow"}, id="wanted")
        print(json.dumps({"pushed": "wanted"}))
except DfqError as error:
    print(json.dumps({"error": type(error).__name__}))
os.getpgid(0)
