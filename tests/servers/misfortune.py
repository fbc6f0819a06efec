"""What may befall a request on its way: drawn from a seeded chance, one fate per request.

The same chance gives the same row of fates. Which request gets which is up to the threads that
send them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from dfq.ambient import Chance

Fate = Literal[
    "lost",
    "late",
    "lost_answer",
    "cut_head",
    "cut_body",
    "delayed",
    "repeated",
    "second_answer",
    "slow_down",
    "server_error",
    "conflict",
]
FATES: tuple[Fate, ...] = get_args(Fate)


@dataclass(frozen=True)
class Misfortune:
    """A fate, and the numbers that it may need."""

    fate: Fate | None = None
    #: How long it is held up.
    seconds: float = 0.0
    #: After how many other requests it arrives, or arrives again.
    later: int = 1
    #: Where the answer is cut, from 0 to 1.
    place: float = 0.0


@dataclass(frozen=True)
class Plan:
    """How often each fate comes, from 0 to 1; together at most 1.

    - lost: the connection is closed, the request never arrives;
    - late: the connection is closed, the request arrives some requests later;
    - lost_answer: it arrives, and the connection is closed instead of an answer;
    - cut_head, cut_body: it arrives, and the answer ends within its head or its body (one without
      a body is lost);
    - delayed: it is held up for a moment;
    - repeated: it arrives and is answered, and arrives again some requests later;
    - second_answer: it arrives twice in a row, and the answer is the one to the second;
    - slow_down, server_error: 503 SlowDown or 500 InternalError, and it never arrives;
    - conflict: 409 ConditionalRequestConflict, and it never arrives (conditional writes only).
    """

    chance: Chance
    shares: Mapping[Fate, float] = field(default_factory=dict)
    longest_delay_seconds: float = 0.02
    #: A late request, or a repeated one, arrives at most so many requests later.
    max_later_requests: int = 50

    def __post_init__(self) -> None:
        unknown = set(self.shares) - set(FATES)
        if unknown:
            raise ValueError(f"no fates: {sorted(unknown)}; there are {', '.join(FATES)}")
        if any(share < 0 for share in self.shares.values()) or sum(self.shares.values()) > 1:
            raise ValueError(f"shares are 0 to 1 and 1 together, not {dict(self.shares)}")
        if self.max_later_requests < 1:
            raise ValueError(f"late is 1 request or more, not {self.max_later_requests}")

    def draw(self) -> Misfortune:
        """What befalls the next request. Always as many draws, so that rows stay in step."""
        drawn = self.chance.uniform(0.0, 1.0)
        seconds = self.chance.uniform(0.0, self.longest_delay_seconds)
        later = 1 + int(self.chance.uniform(0.0, self.max_later_requests - 1e-9))
        place = self.chance.uniform(0.0, 1.0)
        for fate in FATES:
            drawn -= self.shares.get(fate, 0.0)
            if drawn < 0:
                return Misfortune(fate, seconds, later, place)
        return Misfortune()
