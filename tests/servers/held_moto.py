"""moto with the window held open in which it has checked a condition and not yet written.

That window is always there; by itself it is met once in a while only. Run as a program: the port.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path

#: Who comes alone goes on after so long.
HOLD_SECONDS = 0.25


def command(
    program: Callable[[str], str], folder: Path, ports: list[int], keys: tuple[str, str]
) -> tuple[list[str], dict[str, str]]:
    """As the other servers have it, see commands.py."""
    return [sys.executable, str(Path(__file__).resolve()), str(ports[0])], {}


def hold_writes() -> None:
    """Let writers wait for company before they write what they have checked."""
    from moto.s3.models import S3Backend

    write = S3Backend.put_object
    gate = threading.Barrier(2)

    def put_object(self: S3Backend, *arguments: object, **options: object) -> object:
        try:
            gate.wait(HOLD_SECONDS)
        except threading.BrokenBarrierError:
            # Alone; whoever comes next waits anew.
            gate.reset()
        return write(self, *arguments, **options)

    S3Backend.put_object = put_object


def main() -> None:
    from moto.server import main as serve

    hold_writes()
    serve(["-H", "127.0.0.1", "-p", sys.argv[1]])


if __name__ == "__main__":
    main()
