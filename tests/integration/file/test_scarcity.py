"""Where the system has no thread or hardly a file handle left, claims go on."""

from __future__ import annotations

NO_THREADS = """
import sys
from dfq.engines.file import FileQueue

queue = FileQueue(sys.argv[1])
queue.push_many(queue.new_task(n) for n in range(10))
queue.push_many(queue.new_task(n, priority="high") for n in range(200))
for lease in queue.claim_many(500):
    queue.ack(lease)
fresh = FileQueue(sys.argv[1])
print(queue.stats().completed, fresh.stats().completed, fresh.claim(), flush=True)
"""


def test_a_refused_thread_is_no_trouble(script, folder):
    refused = ["-e", "trace=clone,clone3", "-e", "inject=clone,clone3:error=EAGAIN"]
    program = script(NO_THREADS, folder.path, strace=refused)
    assert program.stdout.readline() == "210 210 None\n"
    assert program.wait(20) == 0


FEW_HANDLES = """
import os, resource, sys
from dfq.engines.file import FileQueue

queue = FileQueue(sys.argv[1])
queue.push_many(queue.new_task(n) for n in range(150))
leases = [queue.claim()]
limit = len(os.listdir("/proc/self/fd")) + 20
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
leases += iter(queue.claim, None)
print(len(leases), flush=True)
leases[1:] = [queue.heartbeat(lease) for lease in leases[1:]]
queue.push("one more")
leases.append(queue.claim())
for lease in leases:
    queue.ack(lease)
print(queue.stats().completed, flush=True)
"""


def test_leases_use_up_no_file_handles_that_a_claim_needs(script, folder):
    program = script(FEW_HANDLES, folder.path)
    assert program.stdout.readline() == "150\n"
    assert program.stdout.readline() == "151\n"
    assert program.wait(20) == 0
