"""How long a request may take: a while, and longer only as far as it gets on.

The timeout of a socket bounds one read of it. A server that sends a byte now and then keeps within
that for ever, so what came of all reads and writes together is held against the clock as well.
"""

from __future__ import annotations

import io
import socket
from typing import Any, Final

from dfq.ambient import Clock

#: Slower than this no link is that anybody works over.
BYTES_PER_SECOND: Final = 4096
#: So much is sent at once; then the clock is looked at.
_PIECE_BYTES: Final = 256 * 1024


class TooSlow(TimeoutError):
    """Something comes, but it would take for ever."""


class Paced:
    """A connected socket whose requests must get on. To `http.client` it is a socket."""

    def __init__(self, sock: socket.socket, timeout_seconds: float, clock: Clock) -> None:
        self._socket = sock
        self._timeout = timeout_seconds
        self._clock = clock
        self.begin()

    def begin(self) -> None:
        """A request begins."""
        self._began = self._clock.boot()
        self._moved = 0

    def sendall(self, data: bytes) -> None:
        """Send."""
        with memoryview(data) as whole:
            for start in range(0, len(whole), _PIECE_BYTES):
                piece = whole[start : start + _PIECE_BYTES]
                self.limit()
                self._socket.sendall(piece)
                self.moved(len(piece))

    def makefile(self, mode: str) -> io.BufferedReader:
        """What is read from it."""
        assert mode == "rb"
        return io.BufferedReader(_PacedReads(self, self._socket))

    def limit(self) -> None:
        """Let the next step take no longer than there is time left."""
        spent = self._clock.boot() - self._began
        left = self._timeout + self._moved / BYTES_PER_SECOND - spent
        if left <= 0:
            raise TooSlow(f"only {self._moved:,} bytes came and went in {spent:.3g} s")
        self._socket.settimeout(min(self._timeout, left))

    def moved(self, count: int) -> None:
        """So many bytes came or went."""
        self._moved += count

    def fileno(self) -> int:
        """The socket's number, to poll it by."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close it."""
        self._socket.close()


class _PacedReads(io.RawIOBase):
    """The reads of one answer."""

    def __init__(self, paced: Paced, sock: socket.socket) -> None:
        self._paced = paced
        self._file: Any = sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._paced.limit()
        count: int | None = self._file.readinto(buffer)
        self._paced.moved(count or 0)
        return count

    def close(self) -> None:
        self._file.close()
        super().close()
