"""What a task costs in writes and syncs, counted call by call, and what docs/raspberry-pi.md says.

A card wears out by what is written to it, and is slow when somebody waits for it. So these numbers
are part of what dfq promises: a change of one of them is a change of the table in the document.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCUMENT = Path(__file__).parents[3] / "docs" / "raspberry-pi.md"
#: Of this many bytes, as a task that names a file and says what to do with it.
PAYLOAD_BYTES = 200

#: Ids of one shard, as the first task in each has one sync more.
SCRIPT = """
import hashlib, os, sys
from dfq.engines.file import FileQueue

folder, verb = sys.argv[1], sys.argv[2]
PAYLOAD = "x" * (200 - 2)


def ids(prefix, count):
    found, number = [], 0
    while len(found) < count:
        name = f"{prefix}{number:06}"
        number += 1
        if hashlib.sha256(name.encode()).hexdigest().startswith("00"):
            found.append(name)
    return found


queue = FileQueue(folder)
warm = ids("w", 3)
queue.push(PAYLOAD, id=warm[0])
queue.ack(queue.claim("worker-1"), {"ok": True})
queue.push_many([queue.new_task(PAYLOAD, id=warm[1])])
queue.nack(queue.claim("worker-1"), "not today", delay=3600)
new = ids("t", 4)
lease = None
if verb not in ("push", "push_many"):
    queue.push(PAYLOAD, id=new[0])
    if verb != "claim":
        lease = queue.claim("worker-1")
        assert lease.task_id == new[0]
many = [queue.new_task(PAYLOAD) for _ in range(1_000)]
run = {
    "push": lambda: queue.push(PAYLOAD, id=new[0]),
    "push_many": lambda: queue.push_many(many),
    "claim": lambda: queue.claim("worker-1"),
    "heartbeat": lambda: queue.heartbeat(lease),
    "ack": lambda: queue.ack(lease),
    "ack_result": lambda: queue.ack(lease, {"ok": True}),
    "nack": lambda: queue.nack(lease, "not today", delay=60),
    "release": lambda: queue.release(lease),
}[verb]
os.getpgid(0)
run()
os.getpgid(0)
"""

VERBS = {
    "push": "push",
    "push_many of 1,000": "push_many",
    "claim": "claim",
    "heartbeat": "heartbeat",
    "ack": "ack",
    "ack with a result": "ack_result",
    "nack": "nack",
    "release": "release",
}


def promised(name):
    """Syncs and bytes by the document."""
    row = re.search(
        rf"^\| {re.escape(name)} \| ([\d,]+) \| ([\d,]+) \|", DOCUMENT.read_text(), re.MULTILINE
    )
    assert row is not None, f"{DOCUMENT.name} has no row for {name}"
    return [int(number.replace(",", "")) for number in row.groups()]


@pytest.mark.parametrize("name", VERBS)
def test_a_verb_waits_and_writes_as_often_and_as_much_as_the_document_says(name, tmp_path, strace):
    traced, _ = strace(SCRIPT, tmp_path / "queue", VERBS[name])
    syncs, written = promised(name)
    assert traced.syncs == syncs, [call for call, _ in traced.calls]
    # Times and process ids have more or fewer digits.
    assert traced.written == pytest.approx(written, rel=0.05, abs=12)


TASKS = 300
#: In one go: how a task is pushed decides what it costs.
LIFE = """
import sys
from dfq.engines.file import FileQueue

folder, how, tasks = sys.argv[1], sys.argv[2], int(sys.argv[3])
queue = FileQueue(folder)
payloads = ["x" * 198] * tasks
if how == "one by one":
    for payload in payloads:
        queue.push(payload)
elif how == "in one lot":
    queue.push_many([queue.new_task(payload) for payload in payloads])
else:
    while leases := queue.claim_many(1, "worker-1"):
        queue.ack(leases[0], {"ok": True})
"""
#: What a task may cost the card at most, in bytes, with all that the file system adds: the
#: document says what was measured, and this leaves room for another mkfs.
BOUNDS = {"one by one": 36_000, "in one lot": 16_000, "worked off": 20_000}


@pytest.mark.needs_root
def test_a_task_costs_the_card_no_more_than_so_many_bytes(card, environment):
    def run(how):
        subprocess.run(
            [sys.executable, "-c", LIFE, card.root / "queue", how, str(TASKS)],
            env=environment,
            check=True,
            timeout=60,
        )

    run("in one lot")  # makes the shards
    run("worked off")
    measured = {}
    for how in ("one by one", "worked off", "in one lot"):
        before = card.written_bytes()
        run(how)
        measured[how] = (card.written_bytes() - before) // TASKS
    print(f"bytes written to the card per task: {measured}")
    assert {how: per_task <= BOUNDS[how] for how, per_task in measured.items()} == dict.fromkeys(
        BOUNDS, True
    ), measured
    assert measured["in one lot"] < measured["one by one"] / 2
