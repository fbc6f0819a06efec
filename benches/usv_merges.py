"""Ways to merge an inbox into a shard: ``python -m benches.usv_merges NAME FOLDER``.

Each prints its seconds, its CPU seconds and its peak memory, and leaves output.usv. All read the
inbox files themselves, from a list of paths that is made before; the newest ``updated_at`` wins;
all know the sha256 of what they wrote, but those with "no hash". Only dfq checks its input, or
compares times as moments.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

#: Key -> updated_at and record.
Winners = dict[bytes, tuple[bytes, bytes]]
COLUMNS = ["key", "value", "updated_at", "deleted_at"]


def dfq(folder: Path) -> Callable[[], None]:
    """The merge of the core."""
    from dfq import _core
    from dfq.compiler.merging import MAX_RECORD_BYTES, MEMORY_BYTES

    rules = {
        "columns": 4, "key": 0, "updated_at": 2, "deleted_at": 3, "key_rule": "exact",
        "shard": None, "drop_deleted_before_ns": None, "now_ns": 1 << 62,
        "max_record_bytes": MAX_RECORD_BYTES, "memory_bytes": MEMORY_BYTES, "scratch": str(folder),
    }  # fmt: skip
    inbox = [(path.name, str(path)) for path in inbox_of(folder)]

    def run() -> None:
        _core.merge_usv(
            f"{folder}/shard.usv", inbox, f"{folder}/output.usv", f"{folder}/rejects", rules
        )

    return run


def inbox_of(folder: Path) -> list[Path]:
    """The inbox files in order."""
    return [folder / "inbox" / f"{n:08d}.usv" for n in range(int((folder / "files").read_text()))]


def read(path: Path) -> bytes:
    """A whole file, without a buffer between."""
    with path.open("rb", buffering=0) as file:
        return file.read()


def newest(inbox: list[Path]) -> Winners:
    """The winners of the inbox in plain Python."""
    winners: Winners = {}
    for path in inbox:
        for line in read(path).splitlines(keepends=True):
            fields = line.split(b"\x1f")
            known = winners.get(fields[0])
            if known is None or fields[2] > known[0]:
                winners[fields[0]] = (fields[2], line)
    return winners


def streaming_python(folder: Path, hashed: bool = True) -> Callable[[], None]:
    """Stream the sorted shard past the sorted winners."""
    import hashlib

    inbox = inbox_of(folder)

    def merged(shard: Iterable[bytes], winners: Winners) -> Iterable[bytes]:
        waiting = iter(sorted(winners))
        key = next(waiting, None)
        for line in shard:
            own = line[: line.index(b"\x1f")]
            while key is not None and key < own:
                yield winners[key][1]
                key = next(waiting, None)
            if key == own:
                updated, record = winners[key]
                yield record if updated > line.split(b"\x1f", 3)[2] else line
                key = next(waiting, None)
            else:
                yield line
        while key is not None:
            yield winners[key][1]
            key = next(waiting, None)

    def run() -> None:
        digest = hashlib.sha256()
        with (folder / "shard.usv").open("rb") as shard, (folder / "output.usv").open("wb") as out:
            lot: list[bytes] = []
            for line in merged(shard, newest(inbox)):
                lot.append(line)
                if len(lot) == 1000:
                    body = b"".join(lot)
                    out.write(body)
                    if hashed:
                        digest.update(body)
                    lot.clear()
            body = b"".join(lot)
            out.write(body)
            if hashed:
                digest.update(body)

    return run


def streaming_python_unhashed(folder: Path) -> Callable[[], None]:
    """The same without the hash."""
    return streaming_python(folder, hashed=False)


def polars(folder: Path, hashed: bool = True) -> Callable[[], None]:
    """Data frames: concatenate, sort, keep the newest."""
    import hashlib

    import polars as pl

    schema = dict.fromkeys(COLUMNS, pl.String)

    inbox = inbox_of(folder)

    def parsed(source: object) -> pl.DataFrame:
        return pl.read_csv(
            source, separator="\x1f", has_header=False, schema=schema, quote_char=None
        )

    def run() -> None:
        bodies = b"".join(read(path) for path in inbox)
        frame = pl.concat([parsed(folder / "shard.usv"), parsed(bodies)])
        frame = frame.sort("updated_at", descending=True, maintain_order=True)
        frame = frame.unique("key", keep="first").sort("key")
        frame.write_csv(
            folder / "output.usv", separator="\x1f", include_header=False, quote_style="never"
        )
        if hashed:
            with (folder / "output.usv").open("rb") as output:
                hashlib.file_digest(output, "sha256")

    return run


def polars_unhashed(folder: Path) -> Callable[[], None]:
    """The same without the hash."""
    return polars(folder, hashed=False)


def duckdb(folder: Path) -> Callable[[], None]:
    """SQL: the newest row of each key. Without a hash."""
    import duckdb

    inbox = inbox_of(folder)

    def run() -> None:
        connection = duckdb.connect()
        (folder / "joined.usv").write_bytes(b"".join(read(path) for path in inbox))
        columns = ", ".join(f"'{name}': 'VARCHAR'" for name in COLUMNS)
        files = f"['{folder}/shard.usv', '{folder}/joined.usv']"
        connection.execute(
            f"copy (select * from read_csv({files}, delim='\x1f', header=false, quote='', "
            f"escape='', columns={{{columns}}}) qualify row_number() over (partition by key "
            f"order by updated_at desc) = 1 order by key) to '{folder}/output.usv' "
            "(format csv, delimiter '\x1f', header false, quote '', escape '')"
        )

    return run


def nothing(folder: Path) -> Callable[[], None]:
    """The interpreter alone."""
    return lambda: None


SUBJECTS = {
    "dfq": dfq,
    "streaming Python": streaming_python,
    "streaming Python, no hash": streaming_python_unhashed,
    "polars": polars,
    "polars, no hash": polars_unhashed,
    "duckdb, no hash": duckdb,
    "nothing": nothing,
}


def peak_kb() -> int:
    """The most memory this process had."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0])


def main() -> None:
    name, folder = sys.argv[1], Path(sys.argv[2])
    run = SUBJECTS[name](folder)
    gc.collect()
    started, cpu = time.perf_counter(), time.process_time()
    run()
    print(time.perf_counter() - started, time.process_time() - cpu, peak_kb())


if __name__ == "__main__":
    main()
