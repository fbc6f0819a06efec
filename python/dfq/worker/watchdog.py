"""Whether a worker is really alive: each of its parts has to move within a time it names.

Three can hang, each by itself: the thread that looks for work, the one that beats, and the one
that hears signals and keeps time limits. The last of them gives the signs of life, so without it
there are none; of the others it knows by when they have to move again. A handler that hangs is
none of this: that is what time limits are for.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from dfq.ambient import Clock
from dfq.worker.logs import LOGGER
from dfq.worker.notify import ALIVE, Notifier, status

#: How long a part may take for what has no time of its own, where nobody watches.
PATIENCE_SECONDS = 300.0


class Part:
    """Something that has to move: it says by when it moves again, or that it rests."""

    def __init__(self, name: str, clock: Clock, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self.name = name
        self._clock = clock
        self._patience_seconds = patience_seconds
        self._until = math.inf

    def moves(self, within: float = 0.0, *, times: float = 1.0) -> None:
        """It has moved, and moves again after so many seconds, or a little later."""
        self._until = self._clock.boot() + within + times * self._patience_seconds

    def rests(self) -> None:
        """It has nothing to do."""
        self._until = math.inf

    def late_seconds(self) -> float:
        """For how long it should have moved; 0 or less if all is well."""
        return self._clock.boot() - self._until


class Watchdog:
    """Gives signs of life in the place of all parts, as long as none of them is late."""

    def __init__(self, notifier: Notifier, clock: Clock, describe: Callable[[], str]) -> None:
        self._notifier = notifier
        self._clock = clock
        self._describe = describe
        self._parts: list[Part] = []
        self._hanging: str | None = None
        # Half the time, as one sign may come late.
        self._pause = None if (most := notifier.watchdog_seconds) is None else most / 2
        #: When the next sign is due.
        self.due_at = math.inf

    def part(self, name: str) -> Part:
        """A new part to watch."""
        patience = self._notifier.watchdog_seconds or PATIENCE_SECONDS
        self._parts.append(Part(name, self._clock, patience))
        return self._parts[-1]

    def begin(self, *first: str) -> None:
        """Say this, and give signs from now on."""
        self._notifier.tell(*first, status(self._describe()))
        if self._pause is not None:
            self.due_at = self._clock.boot() + self._pause

    def tell(self, *lines: str) -> None:
        """Say this beside the signs."""
        self._notifier.tell(*lines)

    def feed(self) -> None:
        """Give a sign if one is due and all parts move."""
        now = self._clock.boot()
        if self._pause is None or now < self.due_at:
            return
        self.due_at = now + self._pause
        late = next((part for part in self._parts if part.late_seconds() > 0), None)
        if late is None:
            self._hanging = None
            self._notifier.tell(ALIVE, status(self._describe()))
            return
        if self._hanging != late.name:
            LOGGER.error("%s hangs; the service manager gets no sign of life any more", late.name)
        self._hanging = late.name
        self._notifier.tell(status(f"{late.name} hangs, for {late.late_seconds():.0f} s too long"))
