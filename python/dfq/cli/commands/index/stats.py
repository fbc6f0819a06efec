"""`dfq index stats`."""

from __future__ import annotations

import dataclasses

from dfq.cli.indexes import open_index, takes_index
from dfq.cli.options import command as dfq_command
from dfq.cli.output import json_line, line


@dfq_command("dfq index stats shops", "dfq index stats shops --json")
@takes_index
def command(index: str, as_json: bool) -> None:
    """Count what an index holds.

    Records are counted by the manifest, files by one listing. Shards that the manifest does not
    know as they are now are named: `dfq index rebuild` counts them anew.
    """
    with open_index(index) as opened:
        stats = opened.stats()
    if as_json:
        json_line(dataclasses.asdict(stats))
        return
    living = stats.records - stats.tombstones
    line(f"{living:>14,} records, the newest of {stats.newest_updated_at or 'no time'}")
    line(f"{stats.tombstones:>14,} marks of deletion")
    line(f"{stats.shards:>14,} shards of {stats.bytes:,} bytes")
    line(f"{stats.waiting_files:>14,} files of {stats.waiting_bytes:,} bytes wait")
    if stats.quarantined:
        line(f"{stats.quarantined:>14,} files had records that are in quarantine")
    if stats.locked:
        line(f"{len(stats.locked):>14,} shards are being compiled: {', '.join(stats.locked)}")
    if stats.stale:
        line(
            f"{len(stats.stale):>14,} shards are not counted as they are now; run "
            "`dfq index rebuild`"
        )
