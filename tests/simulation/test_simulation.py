"""Many workers over a store with all bad days at once: the invariants hold in every seed.

A seed that finds something is run again, with all that happens, by the line that it is told with.
"""

from __future__ import annotations

import os

import pytest

from tests.simulation.guards import GUARDS, PATIENCE
from tests.simulation.seeds import findings

SEEDS = int(os.environ.get("DFQ_SEEDS", "20000"))


@pytest.mark.timeout(1800)
def test_every_invariant_holds_whatever_the_network_does():
    found = [str(finding) for finding in findings(range(SEEDS))]
    assert not found, "\n".join(found)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("guard", GUARDS)
def test_the_simulation_misses_each_guard(guard):
    assert next(findings(range(PATIENCE), without=guard), None) is not None
