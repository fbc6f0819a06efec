"""A worker process under a supervisor: its share of the options, and when to stop.

The environment says which child it is, and holds the number of a pipe that ends when the
supervisor dies; then the child stops too.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, replace

from dfq.errors import InvalidConfig
from dfq.worker.logs import LOGGER
from dfq.worker.options import WorkerOptions

CHILD_VARIABLE = "DFQ_WORKER_CHILD"


@dataclass(frozen=True)
class Place:
    """Which child this process is: ``number`` of ``count``, watching ``pipe``."""

    number: int
    count: int
    pipe: int

    def encode(self) -> str:
        """As it stands in the environment."""
        return f"{self.number}/{self.count}/{self.pipe}"


def take_place(environment: MutableMapping[str, str] = os.environ) -> Place | None:
    """Which child of a supervisor this process is, or None.

    The variable is taken away: a program that a handler starts is no child of the supervisor.
    """
    value = environment.pop(CHILD_VARIABLE, None)
    if value is None:
        return None
    try:
        number, count, pipe = (int(part) for part in value.split("/"))
    except ValueError:
        raise InvalidConfig(f"{CHILD_VARIABLE} is {value!r}; only dfq itself sets it") from None
    return Place(number, count, pipe)


def child_options(options: WorkerOptions, child: Place) -> WorkerOptions | None:
    """This child's part of the options; None if there is nothing for it to do."""
    worker_id, health, most = options.worker_id, options.health_path, options.max_tasks
    if most is not None:
        most = most // child.count + (1 if child.number <= most % child.count else 0)
        if most == 0:
            return None
    port = options.metrics_port
    return replace(
        options,
        processes=1,
        # One port each, one after the other.
        metrics_port=port + child.number - 1 if port else port,
        max_tasks=most,
        worker_id=None if worker_id is None else f"{worker_id}-{child.number}",
        health_path=None if health is None else f"{health}.{child.number}",
    )


def watch_supervisor(child: Place, on_death: Callable[[], None]) -> None:
    """Call ``on_death`` when the supervisor is gone: its end of the pipe is closed then."""

    def watch() -> None:
        try:
            while os.read(child.pipe, 1):
                pass
        except OSError:
            pass
        LOGGER.warning("the supervisor is gone; stopping")
        on_death()

    threading.Thread(target=watch, name="dfq-supervisor-watch", daemon=True).start()
