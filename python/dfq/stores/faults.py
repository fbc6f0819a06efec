"""Bad days to order: which request goes wrong, and how, drawn from a seeded chance.

The same chance and the same requests give the same faults, so a run can be replayed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from dfq.ambient import Chance

Fault = Literal["late", "lost", "lost_answer", "duplicated", "conflict", "slow_down"]

#: In this order a draw is compared with the plan.
FAULTS: Final[tuple[Fault, ...]] = (
    "late",
    "lost",
    "lost_answer",
    "duplicated",
    "conflict",
    "slow_down",
)


@dataclass(frozen=True)
class FaultPlan:
    """How often each fault happens, from 0 to 1; together at most 1.

    - late: no answer, and the request is carried out some requests later;
    - lost: no answer, and it never is;
    - lost_answer: it is carried out, but the answer does not come back;
    - duplicated: it is carried out and answered, and once more some requests later;
    - conflict: 409, nothing is done (conditional writes only);
    - slow_down: 503, nothing is done.
    """

    chance: Chance
    late: float = 0.0
    lost: float = 0.0
    lost_answer: float = 0.0
    duplicated: float = 0.0
    conflict: float = 0.0
    slow_down: float = 0.0
    #: A late request arrives at most so many requests later.
    max_delay_requests: int = 20

    def __post_init__(self) -> None:
        shares = [getattr(self, fault) for fault in FAULTS]
        if min(shares) < 0 or sum(shares) > 1:
            raise ValueError(f"shares of faults are 0 to 1 and 1 together, not {shares}")
        if self.max_delay_requests < 1:
            raise ValueError(f"a late request is 1 or more late, not {self.max_delay_requests}")

    def draw(self) -> Fault | None:
        """What goes wrong with the next request; None: nothing."""
        drawn = self.chance.uniform(0.0, 1.0)
        for fault in FAULTS:
            drawn -= getattr(self, fault)
            if drawn < 0:
                return fault
        return None

    def delay(self) -> int:
        """How many requests later a late one arrives."""
        return 1 + int(self.chance.uniform(0.0, self.max_delay_requests - 1e-9))
