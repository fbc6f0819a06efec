"""What a queue tells about itself: records of tasks, holders, statistics, findings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

from dfq.lease import Lease
from dfq.payload import JSON
from dfq.task import Task

#: Where a task stands. ``pending`` splits into ready, delayed, blocked and leased.
State = Literal["ready", "delayed", "blocked", "leased", "completed", "failed"]
STATES: tuple[State, ...] = ("ready", "delayed", "blocked", "leased", "completed", "failed")


class Outcome(Enum):
    """What became of a task that was given back."""

    RETRY = "retry"
    FAILED = "failed"


@dataclass(frozen=True)
class Filter:
    """Which tasks a claim or a listing wants. Empty means all.

    ``labels``: the task has every one of them. ``names``: the task's name is one of them;
    a task without a name matches the empty string.
    """

    project: str | None = None
    labels: tuple[str, ...] = ()
    min_priority: int | None = None
    max_priority: int | None = None
    names: tuple[str, ...] | None = None

    def matches(self, task: Task) -> bool:
        """Whether ``task`` is wanted."""
        return (
            (self.project is None or task.project == self.project)
            and (self.min_priority is None or task.priority >= self.min_priority)
            and (self.max_priority is None or task.priority <= self.max_priority)
            and (self.names is None or (task.name or "") in self.names)
            and all(label in task.labels for label in self.labels)
        )


EVERYTHING = Filter()


@dataclass(frozen=True)
class Pushed:
    """What became of one task of a :meth:`Queue.push_many`."""

    id: str
    #: False: a task with this id was there already, in ``state``; nothing was changed.
    created: bool
    state: str | None = None


@dataclass(frozen=True)
class Record:
    """A task and all that is known about it."""

    task: Task
    state: State
    #: The holder of a leased task; of a finished one, the lease that finished it.
    lease: Lease | None = None
    result: JSON = None
    finished_at: float | None = None
    #: Unmet dependencies: id -> pending, failed or unknown.
    blocked_by: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Stats:
    """Counts of one queue at one moment.

    ``blocked`` counts tasks with an unmet dependency; ``stuck`` those among them whose
    dependency failed or is unknown, which will not move without help.
    """

    ready: int = 0
    delayed: int = 0
    blocked: int = 0
    stuck: int = 0
    leased: int = 0
    completed: int = 0
    failed: int = 0
    quarantined: int = 0
    by_project: Mapping[str, int] = field(default_factory=dict)
    by_label: Mapping[str, int] = field(default_factory=dict)
    #: Age of the oldest ready task, None when there is none.
    oldest_ready_seconds: float | None = None
    paused: bool = False

    @property
    def pending(self) -> int:
        """All that is not finished."""
        return self.ready + self.delayed + self.blocked + self.leased


@dataclass(frozen=True)
class SweepReport:
    """What one sweep put right."""

    expired_leases: int = 0
    failed: int = 0
    temporary_removed: int = 0
    quarantined: int = 0
    archived: int = 0
    dropped: int = 0


@dataclass(frozen=True)
class Finding:
    """One thing `dfq doctor` noticed."""

    level: Literal["ok", "warning", "error"]
    subject: str
    message: str
    advice: str = ""
