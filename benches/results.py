"""What was measured, kept as JSON: what is measured anew replaces only its own."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benches.figures import Figure
from benches.s3_contest import Contest


@dataclass(frozen=True)
class Row:
    """One peer on one filesystem."""

    name: str
    ground: str
    durability: str
    note: str
    tasks: int
    pushes: float
    #: Tasks per second by number of processes; None: not made for so many.
    drains: dict[int, float | None]
    lost: int
    twice: int
    failed: str


@dataclass(frozen=True)
class Run:
    """All that was measured in one place."""

    #: What the place is.
    what: str
    #: When, how thoroughly, and on which machine.
    taken: str
    figures: list[Figure] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    contests: list[Contest] = field(default_factory=list)


def load(path: Path) -> dict[str, Run]:
    """The runs by place; none if nothing was measured yet."""
    if not path.exists():
        return {}
    return {name: _run(fields) for name, fields in json.loads(path.read_text()).items()}


def save(path: Path, runs: dict[str, Run]) -> None:
    """Keep the runs."""
    numbers = {name: asdict(run) for name, run in runs.items()}
    path.write_text(json.dumps(numbers, indent=1, ensure_ascii=False) + "\n")


def _run(fields: dict[str, Any]) -> Run:
    rows = [
        Row(**{**row, "drains": {int(count): rate for count, rate in row["drains"].items()}})
        for row in fields["rows"]
    ]
    return Run(
        what=fields["what"],
        taken=fields["taken"],
        figures=[Figure(**figure) for figure in fields["figures"]],
        rows=rows,
        contests=[Contest(**contest) for contest in fields["contests"]],
    )
