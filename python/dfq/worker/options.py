"""How a worker is to work."""

from __future__ import annotations

from dataclasses import dataclass, field

from dfq.errors import InvalidConfig
from dfq.record import EVERYTHING, Filter


@dataclass(frozen=True)
class WorkerOptions:
    """The settings of one worker process. All have defaults."""

    #: Tasks worked on at once, in threads or as coroutines.
    concurrency: int = 1
    #: Worker processes; more than one are started and watched by a supervisor.
    processes: int = 1
    #: The longest a task may take, unless its handler says otherwise. None: no limit.
    #: A coroutine is cancelled then, a program killed. A function in a thread can't be stopped:
    #: its task fails and may run again elsewhere while it still runs here, with
    #: ``context.cancelled`` set; what it returns later is dropped.
    timeout_seconds: float | None = None
    #: After SIGTERM or SIGINT, how long running tasks may take to finish before they are released.
    grace_seconds: float = 30.0
    #: End when nothing is pending that could still run.
    drain: bool = False
    #: Work on one task, then end.
    once: bool = False
    #: End after so many tasks.
    max_tasks: int | None = None
    #: The name in leases and logs; made from host and pid if absent.
    worker_id: str | None = None
    #: Which tasks to take.
    filter: Filter = field(default=EVERYTHING)
    #: Where to write the liveness file.
    health_path: str | None = None
    #: Serve Prometheus metrics on this port; 0: any that is free.
    metrics_port: int | None = None
    #: And under this address.
    metrics_host: str = "127.0.0.1"
    #: How long leases last; the queue's policy if absent.
    lease_seconds: float | None = None
    #: Put the result of each completed task into the index at this URL, before the ack. What a
    #: handler returns is then an object with the index's columns, or a list of such.
    results_to: str | None = None
    #: Log JSON lines instead of text.
    log_json: bool = False

    def __post_init__(self) -> None:
        for name in ("concurrency", "processes", "max_tasks"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or not 1 <= value <= 10_000):
                raise InvalidConfig(f"{name} is {value!r}; it must be between 1 and 10,000")
        for name in ("timeout_seconds", "lease_seconds"):
            value = getattr(self, name)
            if value is not None and not 0 < value <= 1e9:
                raise InvalidConfig(f"{name} is {value!r}; it must be a number of seconds above 0")
        port = self.metrics_port
        if port is not None and not 0 <= port <= 65_536 - self.processes:
            raise InvalidConfig(
                f"metrics_port is {port!r}; it must be between 0 and 65,535, "
                "and so must that of every process"
            )
        if not 0 <= self.grace_seconds <= 1e9:
            raise InvalidConfig(f"grace_seconds is {self.grace_seconds!r}; it must be >= 0")


@dataclass(frozen=True)
class Progress:
    """How far a worker is; handed to a callback after every change."""

    #: Settled by this worker.
    completed: int = 0
    retried: int = 0
    failed: int = 0
    released: int = 0
    #: Held by this worker now.
    running: int = 0
    #: Still to do in the whole queue; counted only while draining, None otherwise.
    remaining: int | None = None
    #: Tasks that wait for a dependency which failed or is unknown; counted only while draining.
    stuck: int = 0
