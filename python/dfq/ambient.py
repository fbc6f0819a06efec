"""The one module that asks the system for time and chance.

Everything else is handed a :class:`Clock` and a :class:`Chance`, so that a test or a
simulation can own both. A lint rule bans the ambient ones everywhere else.
"""

from __future__ import annotations

import os
import time
from functools import partial
from typing import Protocol

# Crockford's base 32: no I, L, O, U, so an id survives being read aloud.
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


class Clock(Protocol):
    """Two clocks: one for people, one for leases."""

    def wall(self) -> float:
        """Seconds since 1970. It may jump: a Pi without a clock chip boots in the past."""
        ...

    def boot(self) -> float:
        """Seconds since boot, suspended time included. Never jumps."""
        ...


class Chance(Protocol):
    """Randomness: for shuffles, jitter and names nobody else has."""

    def uniform(self, low: float, high: float) -> float:
        """A number between low and high."""
        ...

    def bits(self, count: int) -> int:
        """``count`` random bits."""
        ...


class SystemClock:
    """The machine's own clocks."""

    # The functions themselves, with nothing around them: every claim and ack asks.
    wall = staticmethod(time.time)
    if hasattr(time, "CLOCK_BOOTTIME"):
        boot = staticmethod(partial(time.clock_gettime, time.CLOCK_BOOTTIME))
    else:
        boot = staticmethod(time.monotonic)


class SystemChance:
    """The kernel's randomness: no state, so nothing is drawn twice after a fork."""

    def uniform(self, low: float, high: float) -> float:
        """A number between low and high."""
        return low + (high - low) * (self.bits(53) / (1 << 53))

    def bits(self, count: int) -> int:
        """``count`` random bits."""
        size = (count + 7) // 8
        return int.from_bytes(os.urandom(size), "big") >> (8 * size - count)


SYSTEM_CLOCK: Clock = SystemClock()
SYSTEM_CHANCE: Chance = SystemChance()


def new_id(clock: Clock, chance: Chance) -> str:
    """A fresh id of 26 characters: 48 bits of milliseconds, then 80 random bits.

    Ids made later sort later, which keeps listings in the order of pushes.
    """
    value = (int(clock.wall() * 1000) & 0xFFFF_FFFF_FFFF) << 80 | chance.bits(80)
    return "".join(_ALPHABET[value >> shift & 31] for shift in range(125, -1, -5))
