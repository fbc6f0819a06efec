"""What a queue promises and allows: the contents of queue.json."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from dfq.ambient import Chance
from dfq.errors import InvalidPolicy

#: The layout this version writes. A queue with a greater number is refused.
LAYOUT_VERSION = 1

Finished = Literal["keep", "archive", "drop"]


def nearest(key: str, known: list[str]) -> str:
    """The ending of an error about an unknown key: names the nearest known one."""
    import difflib  # only a mistake needs it

    close = difflib.get_close_matches(key, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(sorted(known))}"


@dataclass(frozen=True)
class RetryPolicy:
    """How long to wait before a failed task is tried again: exponential, with full jitter.

    Before attempt n + 1 a task waits a random time between 0 and
    ``min(cap_seconds, base_seconds * factor ** (n - 1))``.
    """

    base_seconds: float = 2.0
    cap_seconds: float = 300.0
    factor: float = 2.0

    def __post_init__(self) -> None:
        for name, least in (("base_seconds", 0.0), ("cap_seconds", 0.0), ("factor", 1.0)):
            value = getattr(self, name)
            if not isinstance(value, int | float) or isinstance(value, bool) or not value >= least:
                raise InvalidPolicy(f"retry.{name} is {value!r}; it must be a number >= {least:g}")
            if value > 1e12:
                raise InvalidPolicy(f"retry.{name} is {value!r}; that is too large")

    def ceiling_seconds(self, attempts: int) -> float:
        """The longest wait after ``attempts`` failed deliveries."""
        # 64 doublings are past any cap; the bound keeps the power finite.
        return min(
            self.cap_seconds, self.base_seconds * self.factor ** min(max(attempts - 1, 0), 64)
        )

    def delay_seconds(self, attempts: int, chance: Chance) -> float:
        """A wait drawn for a task that has failed ``attempts`` times."""
        return chance.uniform(0.0, self.ceiling_seconds(attempts))

    def to_json(self) -> dict[str, float]:
        """As written into task.json and queue.json."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, value: object) -> RetryPolicy:
        """Read what :meth:`to_json` wrote; an unknown key is an error."""
        return cls(**_known_keys(cls, value, "retry"))


@dataclass(frozen=True)
class Policy:
    """The settings of one queue, kept in its queue.json. All have defaults."""

    #: A lease lives this long without a heartbeat.
    lease_seconds: float = 600.0
    #: The worker renews its leases this often.
    heartbeat_seconds: float = 60.0
    #: Deliveries before a task goes to failed/, unless the task says otherwise.
    max_attempts: int = 5
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    #: The largest payload, as JSON.
    max_payload_bytes: int = 1_048_576
    #: The largest result or saved state, as JSON.
    max_result_bytes: int = 1_048_576
    #: What the sweeper does with completed tasks older than ``finished_after_seconds``.
    finished: Finished = "archive"
    finished_after_seconds: float = 7 * 86_400.0
    #: An idle worker looks again this often even if nothing woke it.
    safety_poll_seconds: float = 30.0

    def __post_init__(self) -> None:
        for name in ("lease_seconds", "heartbeat_seconds", "safety_poll_seconds"):
            value = getattr(self, name)
            if not _is_number(value) or not 0 < value <= 1e9:
                raise InvalidPolicy(f"{name} is {value!r}; it must be a number of seconds above 0")
        if not _is_number(self.finished_after_seconds) or not self.finished_after_seconds >= 0:
            raise InvalidPolicy(
                f"finished_after_seconds is {self.finished_after_seconds!r}; it must be >= 0"
            )
        for name in ("max_attempts", "max_payload_bytes", "max_result_bytes"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value < 2**31:
                raise InvalidPolicy(f"{name} is {value!r}; it must be a whole number >= 1")
        if self.finished not in ("keep", "archive", "drop"):
            raise InvalidPolicy(f"finished is {self.finished!r}; it is keep, archive or drop")
        if self.heartbeat_seconds * 2 > self.lease_seconds:
            raise InvalidPolicy(
                f"heartbeat_seconds ({self.heartbeat_seconds:g}) must be at most half of "
                f"lease_seconds ({self.lease_seconds:g}), or one late beat loses the lease"
            )

    def to_json(self) -> dict[str, Any]:
        """As written into queue.json (without the layout keys, which belong to the engine)."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, value: object) -> Policy:
        """Read the policy keys of queue.json; an unknown key is an error that names the nearest."""
        settings = _known_keys(cls, value, "queue.json")
        if "retry" in settings:
            settings["retry"] = RetryPolicy.from_json(settings["retry"])
        if "lease_seconds" in settings and "heartbeat_seconds" not in settings:
            lease = settings["lease_seconds"]
            if _is_number(lease):
                settings["heartbeat_seconds"] = min(60.0, lease / 3)
        return cls(**settings)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _known_keys(cls: type, value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidPolicy(f"{where} must be a JSON object, not {type(value).__name__}")
    known = [f.name for f in dataclasses.fields(cls)]
    for key in value:
        if key not in known:
            raise InvalidPolicy(f"{where}: unknown key {key!r}; {nearest(str(key), known)}")
    return dict(value)
