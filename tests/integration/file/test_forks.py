"""A fork beside threads that are at work: the child has the queue to itself, whole."""

from __future__ import annotations

BESIDE_A_THREAD = """
import os, signal, sys, threading, warnings
from dfq.engines.file import FileQueue

warnings.simplefilter("ignore", DeprecationWarning)
queue = FileQueue(sys.argv[1])
queue.push_many(queue.new_task(n) for n in range(300))
stop, round_done = threading.Event(), threading.Event()

def work():
    while not stop.is_set():
        for lease in queue.claim_many(50, "thread"):
            queue.release(lease)
        round_done.set()

def use_the_queue():
    queue.claim("child", lease_seconds=3_600)
    queue.push("from a child")
    other = FileQueue(sys.argv[1])
    queue.ack(other.claim("child"))
    queue.wait(0.0)
    queue.stats()

thread = threading.Thread(target=work)
thread.start()
failed = []
for number in range(40):
    round_done.clear()
    assert round_done.wait(60)
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        code = 1
        try:
            use_the_queue()
            code = 0
        finally:
            os._exit(code)
    status = os.waitpid(child, 0)[1]
    if status:
        failed.append(status)
        break
stop.set()
thread.join(60)
print(failed, thread.is_alive(), flush=True)
"""


def test_a_fork_beside_a_thread_that_claims_leaves_the_child_a_queue_that_works(script, folder):
    program = script(BESIDE_A_THREAD, folder.path)
    assert program.stdout.readline() == "[] False\n"
    assert program.wait(20) == 0


WAITING_CHILD = """
import os, sys, threading
from dfq.engines.file import FileQueue

queue = FileQueue(sys.argv[1])
queue.claim()
queue.wait(0.0)
queue.claim()
parent = os.getpid()
child = os.fork()
if child == 0:
    # Again and again: whatever wakes it, it comes back.
    while os.getppid() == parent:
        queue.wait(5.0)
    os._exit(0)
woken = []

def wait():
    print(threading.get_native_id(), child, flush=True)
    woken.append(queue.wait(15.0))

for _ in range(10):
    thread = threading.Thread(target=wait)
    thread.start()
    sys.stdin.readline()
    queue.interrupt()
    thread.join()
os.kill(child, 9)
os.waitpid(child, 0)
print(woken, flush=True)
"""


def test_a_child_that_waits_does_not_take_its_parents_interrupt(script, folder, asleep):
    program = script(WAITING_CHILD, folder.path)
    for _ in range(10):
        for thread in program.stdout.readline().split():
            asleep(int(thread))
        program.stdin.write("go\n")
        program.stdin.flush()
    assert program.stdout.readline() == f"{[True] * 10}\n"
