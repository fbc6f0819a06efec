"""What a queue costs where requests are paid for: counts, prices, and a bill made of the two."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

#: The kinds of requests that a store counts, in the order they are told.
KINDS: Final = ("put", "get", "list", "delete")
#: A task takes a send, a receive and a delete through SQS; each takes ten tasks at most.
SQS_REQUESTS: Final = 3
SQS_BATCH: Final = 10

_MILLION: Final = 1e6


@dataclass(frozen=True)
class Prices:
    """Dollars for a million requests of each kind: S3 in us-east-1, and SQS there."""

    put: float = 5.0
    get: float = 0.40
    list: float = 5.0
    delete: float = 0.0
    sqs: float = 0.40


@dataclass(frozen=True)
class Usage:
    """What one process asked of the store, and what came of it."""

    #: When it began, and when it last told, by the store's clock.
    since: float
    until: float
    #: Requests by kind.
    requests: Mapping[str, int]
    pushed: int = 0
    claimed: int = 0
    completed: int = 0


@runtime_checkable
class Metered(Protocol):
    """A queue whose requests are counted, because they are paid for."""

    def usage(self) -> list[Usage]:
        """What the processes of the last day told of themselves, and this one."""
        ...


@dataclass(frozen=True)
class Bill:
    """The usage of several processes, priced."""

    prices: Prices
    processes: int
    since: float
    until: float
    requests: Mapping[str, int]
    pushed: int
    claimed: int
    completed: int

    @property
    def dollars_by_kind(self) -> dict[str, float]:
        """What the requests of each kind cost."""
        return {
            kind: count * getattr(self.prices, kind) / _MILLION
            for kind, count in self.requests.items()
        }

    @property
    def dollars(self) -> float:
        """What all of it costs."""
        return sum(self.dollars_by_kind.values())

    @property
    def requests_per_task(self) -> dict[str, float] | None:
        """Requests by kind for each completed task; None if none was."""
        if not self.completed:
            return None
        return {kind: count / self.completed for kind, count in self.requests.items()}

    @property
    def dollars_per_million_tasks(self) -> float | None:
        """What a million completed tasks cost at this rate."""
        return self.dollars / self.completed * _MILLION if self.completed else None

    @property
    def sqs_dollars(self) -> float:
        """What SQS would have cost for the same tasks, one by one."""
        return self.completed * SQS_REQUESTS * self.prices.sqs / _MILLION

    @property
    def sqs_batched_dollars(self) -> float:
        """The same with ten tasks to a request."""
        return self.sqs_dollars / SQS_BATCH


def bill(usages: Iterable[Usage], prices: Prices) -> Bill:
    """Add up what processes told, and price it."""
    told = list(usages)
    return Bill(
        prices=prices,
        processes=len(told),
        since=min((one.since for one in told), default=0.0),
        until=max((one.until for one in told), default=0.0),
        requests={kind: sum(one.requests.get(kind, 0) for one in told) for kind in KINDS},
        pushed=sum(one.pushed for one in told),
        claimed=sum(one.claimed for one in told),
        completed=sum(one.completed for one in told),
    )
