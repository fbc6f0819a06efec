"""What tests of indexes share: making them, filling them, and what must be true of them."""

from __future__ import annotations

import hashlib
import itertools

from dfq import Index
from dfq.ambient import Chance, Clock
from dfq.compiler.listing import list_index
from dfq.compiler.paths import shard_key
from dfq.compiler.reports import CompileReport
from dfq.store import Store
from dfq.testing import FakeClock, SeededChance
from tests.models.index_model import IndexModel, Schema, written

COLUMNS = ["domain", "city"]
WALL = 1_700_000_000.0


def make_index(store: Store, *, clock: Clock | None = None, seed: int = 1, **settings) -> Index:
    """A new index with the columns of these tests."""
    return Index.create(
        "test", COLUMNS, store=store, **hands(clock, SeededChance(seed)), **settings
    )


def open_index(store: Store, *, clock: Clock | None = None, seed: int = 2) -> Index:
    """Another handle on it."""
    return Index("test", store=store, **hands(clock, SeededChance(seed)))


def hands(clock: Clock | None, chance: Chance) -> dict[str, object]:
    return {"clock": clock or FakeClock(WALL), "chance": chance}


def shard_of(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:2]


def keys_of(shard: str, count: int) -> list[str]:
    """Keys that belong to a shard."""
    candidates = (f"{number}.example" for number in itertools.count())
    return list(itertools.islice((k for k in candidates if shard_of(k) == shard), count))


def row(key: str, city: str = "Bern", at: str = "2023-11-01T00:00:00Z", deleted: str = ""):
    """A record of these tests."""
    return [key, city, at, deleted]


def drop(store: Store, key: str, *rows: list[str] | bytes) -> bytes:
    """Put a file into the store as anybody might; its bytes."""
    body = b"".join(one if isinstance(one, bytes) else written([one]) for one in rows)
    store.put(key, body)
    return body


def shards_of(store: Store) -> dict[str, bytes]:
    """The bytes of all shards."""
    listed = list_index(store)
    return {shard: store.read(shard_key(shard)).body for shard in listed.shards}


def quarantined(store: Store) -> list[bytes]:
    """The records set aside."""
    keys = [entry.key for entry in store.list("quarantine/").entries]
    return sorted(store.read(key).body for key in keys if key.endswith("records.usv"))


def is_settled(store: Store) -> bool:
    """Whether nothing waits and nothing is locked."""
    listed = list_index(store)
    return not listed.files() and not listed.locks


def model_of(*bodies: bytes, key_rule: str = "exact") -> dict[str, bytes]:
    """What the shards must hold once these were compiled, in whatever order."""
    model = IndexModel(Schema(key_rule=key_rule))
    for body in bodies:
        model.put(body)
    shards: dict[str, bytes] = {}
    for key in sorted(model.records):
        shard = hashlib.sha256(key).hexdigest()[:2]
        line = b"\x1f".join(model.records[key]) + b"\n"
        shards[shard] = shards.get(shard, b"") + line
    return shards


def outcomes(report: CompileReport) -> dict[str, str]:
    return {one.shard: one.outcome for one in report.shards}
