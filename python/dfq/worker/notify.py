"""What a worker tells whoever started it: ready, alive, stopping.

This is the protocol of systemd's Type=notify: datagrams of NAME=value lines to the socket that
NOTIFY_SOCKET names, and a sign of life within every WATCHDOG_USEC microseconds. The processes of
one worker speak the same to their supervisor, over a socket they inherit.
"""

from __future__ import annotations

import os
from collections.abc import Callable, MutableMapping

from dfq.errors import InvalidConfig
from dfq.worker.logs import LOGGER

#: How a supervisor tells its child: the number of a socket, and the microseconds.
NOTIFY_VARIABLE = "DFQ_WORKER_NOTIFY"
READY, ALIVE, STOPPING = "READY=1", "WATCHDOG=1", "STOPPING=1"
#: A manager that does not read for so long is told nothing.
SEND_SECONDS = 1.0


class Notifier:
    """Sends messages to a manager, if there is one; without one it costs nothing."""

    def __init__(
        self,
        send: Callable[[bytes], object] | None = None,
        watchdog_seconds: float | None = None,
    ) -> None:
        self._send = send
        #: Within so many seconds the manager wants a sign of life; None: it wants none.
        self.watchdog_seconds = watchdog_seconds
        self._failing = False

    @property
    def heard(self) -> bool:
        """Whether there is anybody to tell."""
        return self._send is not None

    def tell(self, *lines: str) -> None:
        """Send these lines as one message. A manager that can't be reached is no reason to end."""
        if self._send is None:
            return
        try:
            self._send("\n".join(lines).encode(errors="replace"))
        except OSError as error:
            if not self._failing:
                LOGGER.warning("the service manager can't be told anything: %s", error)
            self._failing = True
        else:
            self._failing = False


def status(text: str) -> str:
    """A line that says in words how things are; one line, whatever is in it."""
    return f"STATUS={' '.join(text.split())}"


def take_notifier(environment: MutableMapping[str, str] = os.environ) -> Notifier:
    """The one who is to be told, by the environment.

    The variables are taken away: a program that a handler starts is not the service.
    """
    own = environment.pop(NOTIFY_VARIABLE, None)
    address = environment.pop("NOTIFY_SOCKET", None)
    period = environment.pop("WATCHDOG_USEC", None)
    watched = environment.pop("WATCHDOG_PID", None)
    if own is not None:
        return _supervised(own)
    if not address:
        return Notifier()
    if address[0] not in "/@":
        LOGGER.warning("NOTIFY_SOCKET is %r, which is no unix socket; nobody is told", address)
        return Notifier()
    if watched is not None and watched != str(os.getpid()):
        period = None
    return Notifier(_to_address(address), _seconds(period))


def _seconds(microseconds: str | None) -> float | None:
    try:
        seconds = int(microseconds or 0) / 1e6
    except ValueError:
        LOGGER.warning("WATCHDOG_USEC is %r, which is no number; ignored", microseconds)
        return None
    return seconds if seconds > 0 else None


def _to_address(address: str) -> Callable[[bytes], object]:
    # An @ stands for the NUL of an abstract socket, which has no file.
    name = os.fsencode("\0" + address[1:] if address.startswith("@") else address)

    def send(message: bytes) -> None:
        import socket

        # Anew for each, they are rare: a manager that starts again has another socket.
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.settimeout(SEND_SECONDS)
            sender.sendto(message, name)

    return send


def _supervised(value: str) -> Notifier:
    try:
        descriptor, microseconds = (int(part) for part in value.split("/"))
        os.set_inheritable(descriptor, False)
        # A supervisor that does not listen must not hold up the work.
        os.set_blocking(descriptor, False)
    except (ValueError, OSError):
        raise InvalidConfig(f"{NOTIFY_VARIABLE} is {value!r}; only dfq itself sets it") from None
    return Notifier(
        lambda message: os.write(descriptor, message), microseconds / 1e6 if microseconds else None
    )
