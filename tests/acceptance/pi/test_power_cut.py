"""The power is cut at random moments, by a disk that drops all it was not made to keep.

The file system is shut down in the midst of the work (as a disk without power would do it), without
its journal being written out, and mounted again: what is there then is what a Pi finds after the
cut. That the test can fail is part of it: the same with syncs that only say they were done.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys

import pytest

from tests.acceptance.pi.conftest import HERE, missing

pytestmark = [pytest.mark.needs_root, pytest.mark.crash]

CUTS = 8
SEED = 7
#: Pushes that return but do not wait for the disk.
LYING = ("strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fsync,syncfs", "-e")
LYING += ("inject=fsync,syncfs:retval=0",)


def work_until_the_power_fails(card, environment, name, acknowledgements, under=()):
    """What was acknowledged by a process that the cut interrupts."""
    process = subprocess.Popen(
        [*under, sys.executable, HERE / "children" / "churn.py", card.root / "queue", name],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    acknowledged = []
    for _ in range(acknowledgements):
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        acknowledged.append(line.strip())
    card.cut_power()
    rest, error = process.communicate(timeout=60)
    # The file system that was shut down says the one or the other.
    assert "the disk reports an error" in error or "the disk is read-only" in error, error
    return acknowledged + rest.split()


def take_stock(card, environment, acknowledged):
    ran = subprocess.run(
        [sys.executable, HERE / "children" / "take_stock.py", card.root / "queue"],
        env=environment,
        input="\n".join(acknowledged),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_a_power_cut_at_any_moment_loses_nothing_that_was_acknowledged(card, environment):
    chance = random.Random(SEED)
    acknowledged: list[str] = []
    worked_off = 0
    for cut in range(CUTS):
        acknowledged += work_until_the_power_fails(
            card, environment, f"cut{cut}", chance.randint(1, 300)
        )
        card.power_up()
        found = take_stock(card, environment, acknowledged)
        worked_off += found.pop("worked_off")
        nothing = {"lost": [], "torn": [], "not_done": [], "pending": 0, "quarantined": 0}
        assert found == nothing, f"after cut {cut}"
    assert len(acknowledged) > 20 * CUTS
    assert worked_off >= CUTS, "the cuts interrupted nothing"


def test_the_same_with_syncs_that_do_nothing_loses_pushes(card, environment):
    """What the test above would see if a push did not wait for the disk."""
    if shutil.which("strace") is None:
        missing("strace")
    # What is made before is really on the disk: the queue itself is not what gets lost.
    first = work_until_the_power_fails(card, environment, "first", 30)
    card.power_up()
    second = work_until_the_power_fails(card, environment, "second", 60, LYING)
    card.power_up()
    lost = take_stock(card, environment, first + second)["lost"]
    assert lost
    assert not set(lost) & set(first), "what was synced before is kept all the same"
