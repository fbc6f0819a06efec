"""Waiting for work in a store that can't call: look again, less and less often."""

from __future__ import annotations

import threading
from typing import Final

from dfq.ambient import Chance, Clock

_FIRST_SECONDS: Final = 1.0
#: 2,400 looks a day, if nothing ever comes.
_LONGEST_SECONDS: Final = 36.0


class Idling:
    """When the next look is worth its price. Safe from threads."""

    #: No wait for the next look is longer.
    longest_seconds = _LONGEST_SECONDS * 1.25

    def __init__(self, clock: Clock, chance: Chance) -> None:
        self._clock = clock
        self._chance = chance
        self._changed = threading.Condition()
        self._fruitless = 0
        self._look_at = 0.0
        self._news = False
        self._interrupts = 0
        self._answered = 0

    def claimed(self, found: bool) -> None:
        """A claim found something, or nothing."""
        with self._changed:
            self._news = False
            if found:
                self._fruitless = 0
                self._look_at = 0.0
                return
            pause = min(_LONGEST_SECONDS, _FIRST_SECONDS * 2.0 ** min(self._fruitless, 10))
            self._fruitless += 1
            # By chance, so that the workers of a queue don't look in step.
            self._look_at = self._clock.boot() + pause * self._chance.uniform(0.75, 1.25)

    def stir(self) -> None:
        """This handle changed something that may be worth a claim."""
        with self._changed:
            self._news = True
            self._fruitless = 0
            self._changed.notify_all()

    def due_seconds(self) -> float:
        """How long it is until the next look is due."""
        return max(0.0, self._look_at - self._clock.boot())

    def wait(self, timeout_seconds: float) -> bool:
        """Block until the next look is due, at most so long."""
        with self._changed:
            asked = self._answered
            pause = self.due_seconds()
            stirred = self._changed.wait_for(
                lambda: self._news or self._interrupts != asked, min(pause, timeout_seconds)
            )
            self._answered = self._interrupts
            return self._news or (not stirred and pause <= timeout_seconds)

    def interrupt(self) -> None:
        """Wake every thread that waits, or else the next one that comes."""
        with self._changed:
            self._interrupts += 1
            self._changed.notify_all()
