"""A shard and an inbox to merge into it: the same for everybody."""

from __future__ import annotations

import random
from pathlib import Path

RECORD_BYTES = 100
COLUMNS = 4  # key, value, updated_at, deleted_at


def record(key: str, updated: str, note: str) -> bytes:
    """A record of 100 bytes."""
    bare = f"{key}\x1f\x1f{updated}\x1f\n"
    return bare.replace("\x1f", "\x1f" + note.ljust(RECORD_BYTES - len(bare), "x"), 1).encode()


def moment(number: int) -> str:
    """A time that grows with the number."""
    day = f"2026-{number // 2_419_200 % 12 + 1:02d}-{number // 86_400 % 28 + 1:02d}"
    return f"{day}T{number // 3600 % 24:02d}:{number // 60 % 60:02d}:{number % 60:02d}Z"


def make(folder: Path, records: int, inbox_files: int, each: tuple[int, int] = (1, 3)) -> None:
    """shard.usv with that many records, and inbox/ with files of so many each."""
    chance = random.Random(4)
    with (folder / "shard.usv").open("wb") as shard:
        for number in range(records):
            shard.write(record(f"key-{number * 2:012d}", moment(number % 1_000_000), "old"))
    (folder / "files").write_text(str(inbox_files))
    inbox = folder / "inbox"
    inbox.mkdir()
    for number in range(inbox_files):
        body = b"".join(
            # Half of them are there already; some of those are older than what is there.
            record(
                f"key-{chance.randrange(records * 2):012d}",
                moment(chance.randrange(2_000_000)),
                f"new {number}",
            )
            for _ in range(chance.randint(*each))
        )
        (inbox / f"{number:08d}.usv").write_bytes(body)
