from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dfq import _core
from tests.models.index_model import Schema, written

DAY_NS = 86_400 * 10**9
#: The time of day in these tests: 2026-11-18T09:03:00Z.
NOW_NS = 1_794_992_580 * 10**9


@dataclass
class Merging:
    """Merges bodies into a shard that stays between merges."""

    folder: Path
    schema: Schema = field(default_factory=Schema)
    rules: dict = field(default_factory=dict)
    count: int = 0
    #: What the last merge said.
    report: dict = field(default_factory=dict)

    @property
    def shard(self) -> Path:
        return self.folder / "shard.usv"

    def __call__(self, *bodies, **rules):
        """Merge; returns the bytes of the shard."""
        self.count += 1
        output = self.folder / f"output-{self.count}"
        rejects = self.folder / f"rejects-{self.count}"
        scratch = self.folder / f"scratch-{self.count}"
        scratch.mkdir()
        given = {
            "columns": self.schema.columns,
            "key": self.schema.key,
            "updated_at": self.schema.updated_at,
            "deleted_at": self.schema.deleted_at,
            "key_rule": self.schema.key_rule,
            "shard": None,
            "drop_deleted_before_ns": None,
            "now_ns": NOW_NS,
            "max_record_bytes": 1 << 20,
            "memory_bytes": 1 << 20,
            "scratch": str(scratch),
        }
        inbox = [
            (f"entry-{number}", str(body) if isinstance(body, Path) else body)
            for number, body in enumerate(bodies)
        ]
        shard = str(self.shard) if self.shard.exists() else None
        self.report = _core.merge_usv(
            shard, inbox, str(output), str(rejects), given | self.rules | rules
        )
        self.rejected = rejects.read_bytes() if rejects.exists() else b""
        assert list(scratch.iterdir()) == []
        output.rename(self.shard)
        return self.shard.read_bytes()

    def kinds(self):
        """Why what was rejected was rejected: number of the record and kind."""
        return [(reject[1], reject[2]) for reject in self.report["rejects"]]

    def raw(self):
        """The raw bytes of what was rejected."""
        return [self.rejected[at : at + size] for *_, at, size in self.report["rejects"]]


@pytest.fixture
def merge(tmp_path):
    return Merging(tmp_path)


@pytest.fixture
def new_merge(tmp_path):
    """Makes merges that know nothing of each other."""
    made = []

    def make(**options):
        folder = tmp_path / f"merging-{len(made)}"
        folder.mkdir()
        made.append(Merging(folder, **options))
        return made[-1]

    return make


@pytest.fixture
def row():
    """A record in canonical form: key, value, updated_at, deleted_at."""

    def row(key, value="", updated="2026-01-01T00:00:00Z", deleted=""):
        return written([[key, value, updated, deleted]])

    return row
