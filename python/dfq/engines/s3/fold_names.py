"""The names of the objects that hold completed tasks: the name alone says what can't be inside.

``completed/<day>/<first>-<last>-<mark>-<count>-<filter>.jsonl``: the seconds in which its tasks
ended, the mark of what is in it, how many they are, and a Bloom filter of their ids. So a listing,
a thousand names at a time, tells nearly all there is to know about an id, and nothing but the
objects themselves has to be kept in step. Who folds the same records gives them the same name, and
the second one finds it taken.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from dfq.engines.s3.fields import seconds_of, stamp
from dfq.engines.s3.keys import COMPLETED

#: Bytes of the filter for each id. All parts of a name fit into the 255 bytes that a file's name
#: has in stores that keep files; so a hundred ids share 12 bits each, and one in 350 others is
#: taken for one of them.
_BYTES_EACH: Final = 3
_LEAST_BYTES: Final = 24
_MOST_BYTES: Final = 153

_NAME: Final = re.compile(
    r"completed/\d{4}-\d\d-\d\d/(\d{10})-(\d{10})-[0-9a-f]{16}-(\d{1,4})-([A-Za-z0-9_-]+)\.jsonl",
    re.ASCII,
)
#: Names that had no filter; what they hold must be read.
_OLDER_NAME: Final = re.compile(
    r"completed/\d{4}-\d\d-\d\d/\d+-[0-9a-z]+-[0-9a-f]+-(\d+)\.jsonl", re.ASCII
)


class Probe(NamedTuple):
    """What is asked about an id: its mark where all are known, and its place in a filter."""

    mark: int
    start: int
    step: int


@dataclass(frozen=True)
class FoldName:
    """What the name of an object under ``completed/`` says; None: it doesn't."""

    count: int | None = None
    first: float | None = None
    last: float | None = None
    filter: bytes | None = None

    def may_have(self, task: Probe) -> bool:
        """Whether the task may be in it."""
        if self.filter is None or not self.count:
            return True
        bits = _bits_of(task, 8 * len(self.filter), self.count)
        return all(self.filter[bit >> 3] >> (bit & 7) & 1 for bit in bits)

    def may_span(self, ended_at: float) -> bool:
        """Whether a task that ended then may be in it."""
        if self.first is None or self.last is None:
            return True
        return self.first <= _clamped(ended_at) <= self.last


def read_name(key: str) -> FoldName:
    """What a name says."""
    match = _NAME.fullmatch(key)
    if match is not None and len(match[4]) % 4 == 0:
        return FoldName(
            int(match[3]), float(match[1]), float(match[2]), base64.urlsafe_b64decode(match[4])
        )
    match = _OLDER_NAME.fullmatch(key)
    return FoldName() if match is None else FoldName(int(match[1]))


def name_of(records: Sequence[Mapping[str, Any]]) -> str:
    """The name of the object that holds these records, whoever makes it."""
    ended = [_clamped(seconds_of(record["finished_at"])) for record in records]
    first, last = math.floor(min(ended)), math.ceil(max(ended))
    marks = sorted(f"{record['task_id']} {record.get('lease_id', '')}" for record in records)
    mark = hashlib.sha256("\n".join(marks).encode()).hexdigest()[:16]
    filter = bytearray(max(_LEAST_BYTES, min(_MOST_BYTES, _BYTES_EACH * len(records))))
    for record in records:
        for bit in _bits_of(probe_of(record["task_id"]), 8 * len(filter), len(records)):
            filter[bit >> 3] |= 1 << (bit & 7)
    shown = base64.urlsafe_b64encode(filter).decode()
    name = f"{first:010d}-{last:010d}-{mark}-{len(records)}-{shown}"
    return f"{COMPLETED}{stamp(first)[:10]}/{name}.jsonl"


def probe_of(task_id: str) -> Probe:
    """What an id is looked for by."""
    return Probe(*struct.unpack_from(">QQQ", hashlib.sha256(task_id.encode()).digest()))


def _bits_of(task: Probe, bits: int, count: int) -> Iterator[int]:
    """The bits of a filter that stand for an id."""
    bit, step = task.start % bits, task.step % bits | 1
    for _ in range(max(1, min(16, round(0.69 * bits / count)))):
        yield bit
        bit = (bit + step) % bits


def _clamped(seconds: float) -> float:
    """As far as ten digits go."""
    return min(max(seconds, 0.0), 9_999_999_999.0)
