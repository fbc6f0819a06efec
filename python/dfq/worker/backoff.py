"""Waiting longer after each failure, by chance, so that workers don't come back in step."""

from __future__ import annotations

from dfq.ambient import Chance


class Backoff:
    """Growing pauses with jitter."""

    def __init__(
        self, chance: Chance, *, first_seconds: float = 0.5, longest_seconds: float = 60.0
    ) -> None:
        self._chance = chance
        self._first_seconds = first_seconds
        self._longest_seconds = longest_seconds
        self.failures = 0

    def next_seconds(self) -> float:
        """The next pause: half of it is certain, half is chance."""
        ceiling = min(self._longest_seconds, self._first_seconds * 2.0 ** min(self.failures, 30))
        self.failures += 1
        return self._chance.uniform(ceiling / 2, ceiling)

    def reset(self) -> None:
        """All is well again."""
        self.failures = 0
