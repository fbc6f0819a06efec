"""What a supervisor hears of a child: that it is ready, and its signs of life."""

from __future__ import annotations

import math
import socket
import threading
from collections.abc import Callable

from dfq.ambient import Clock
from dfq.worker.notify import ALIVE, NOTIFY_VARIABLE, READY

#: What a child that hangs gets to show where it hangs, before it is killed for good.
LAST_WORDS_SECONDS = 5.0
#: What a child gets until it is ready: importing handlers from an SD card may take its time.
START_SECONDS = 300.0
_LONGEST_MESSAGE = 4_096


class Hearing:
    """Listens to one child, from its start to its end."""

    def __init__(
        self, clock: Clock, watchdog_seconds: float | None, on_ready: Callable[[], None]
    ) -> None:
        self._clock = clock
        self._watchdog_seconds = watchdog_seconds
        self._on_ready = on_ready
        self.ready = False
        #: When the child has been silent for too long.
        self.hung_at = math.inf
        # It keeps messages apart, and ends when the child does.
        self._ours, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    @property
    def descriptor(self) -> int:
        """What the child inherits."""
        return self._theirs.fileno()

    @property
    def variable(self) -> tuple[str, str]:
        """What the child finds in its environment."""
        microseconds = int((self._watchdog_seconds or 0) * 1e6)
        return NOTIFY_VARIABLE, f"{self.descriptor}/{microseconds}"

    def begin(self) -> None:
        """The child has its end; listen to it."""
        self._theirs.close()
        if self._watchdog_seconds is not None:
            self.hung_at = self._clock.boot() + START_SECONDS
        threading.Thread(target=self._listen, name="dfq-hearing", daemon=True).start()

    def spare(self) -> None:
        """Give it a moment more."""
        self.hung_at = self._clock.boot() + LAST_WORDS_SECONDS

    def _listen(self) -> None:
        with self._ours:
            while message := self._ours.recv(_LONGEST_MESSAGE):
                lines = message.decode(errors="replace").split("\n")
                if READY in lines or ALIVE in lines:
                    if self._watchdog_seconds is not None:
                        self.hung_at = self._clock.boot() + self._watchdog_seconds
                    self.ready = True
                if READY in lines:
                    self._on_ready()
