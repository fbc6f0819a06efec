"""What came of certifying a store: a value to show, to refuse by and to remember."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast

from dfq.payload import JSON

#: Grows when a check is added or mended: what passed older ones is checked again.
CHECKS_VERSION: Final = 2

_WITHOUT_CONDITIONAL_DELETE: Final = (
    "deletes are not conditional here; dfq does without: what may be written again (a lease that "
    "ends, a task that may come back) is replaced by a mark, which is conditional, and only what "
    "belongs to a completed task is deleted"
)


@dataclass(frozen=True)
class Verdict:
    """Whether a store keeps the promises that a queue is built on."""

    #: The store's URL and the name of what serves it.
    store: str
    endpoint: str
    #: What it got wrong, a sentence each; empty: nothing.
    problems: tuple[str, ...]
    #: Whether it deletes a version only if it is the one named. A queue can do without.
    conditional_delete: bool
    #: The requests it took, by kind: what the bill will say.
    requests: Mapping[str, int]
    #: When, in seconds since 1970 by the store's clock, and how many seconds it took.
    at: float
    seconds: float
    #: How many raced, and how many races of each kind were decided.
    writers: int
    rounds: Mapping[str, int]
    checks: int = CHECKS_VERSION

    @property
    def ok(self) -> bool:
        """Whether a queue may use the store."""
        return not self.problems

    @property
    def notes(self) -> tuple[str, ...]:
        """What is worth knowing of a store that passed."""
        return () if self.conditional_delete else (_WITHOUT_CONDITIONAL_DELETE,)

    def to_json(self) -> dict[str, JSON]:
        """As shown by programs and kept in the bucket."""
        return {"ok": self.ok, **dataclasses.asdict(self)}

    @classmethod
    def from_json(cls, value: object) -> Verdict:
        """Read what :meth:`to_json` wrote; raises ValueError for anything else."""
        if not isinstance(value, dict):
            raise ValueError(f"a verdict is a JSON object, not {type(value).__name__}")
        try:
            verdict = cls(
                store=_text(value["store"]),
                endpoint=_text(value["endpoint"]),
                problems=tuple(_text(problem) for problem in value["problems"]),
                conditional_delete=value["conditional_delete"] is True,
                requests=_counts(value["requests"]),
                at=float(value["at"]),
                seconds=float(value["seconds"]),
                writers=int(value["writers"]),
                rounds=_counts(value["rounds"]),
                checks=int(value["checks"]),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"this is no verdict: {error!r}") from None
        if value.get("ok") is not verdict.ok:
            raise ValueError("this verdict contradicts itself")
        return verdict


def _counts(value: dict[object, object]) -> dict[str, int]:
    return {_text(name): int(cast("int", count)) for name, count in value.items()}


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value
