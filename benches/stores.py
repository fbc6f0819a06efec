"""What a request to a bucket costs in CPU, beside botocore: ``python -m benches.stores [server]``.

Both talk to the same server in the same run, in turns; only this process's CPU time counts.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any
from urllib.parse import urlsplit

from dfq import _core
from dfq.store import Stored
from dfq.stores.s3 import S3Store
from tests.servers import BUCKET, Server, client, settings, start

BODY = b"x" * 300
REQUESTS = 300
ROUNDS = 5
KEYS = 1000


class Subjects:
    """The same requests by dfq and by botocore."""

    def __init__(self, server: Server, store: S3Store) -> None:
        self.store = store
        self.botocore: Any = client(server.endpoint)
        self._round = 0

    def put_dfq(self) -> None:
        self._round += 1
        for number in range(REQUESTS):
            self.store.create(f"put/{self._round}/{number}", BODY)

    def put_botocore(self) -> None:
        self._round += 1
        for number in range(REQUESTS):
            key = f"bench/bare/{self._round}/{number}"
            self.botocore.put_object(Bucket=BUCKET, Key=key, Body=BODY, IfNoneMatch="*")

    def get_dfq(self) -> None:
        for number in range(REQUESTS):
            assert self.store.read(f"page/{number:04d}")

    def get_botocore(self) -> None:
        for number in range(REQUESTS):
            got = self.botocore.get_object(Bucket=BUCKET, Key=f"bench/page/{number:04d}")
            got["Body"].read()

    def fill(self) -> None:
        for number in range(KEYS):
            self.store.put(f"page/{number:04d}", BODY)

    def list_dfq(self) -> None:
        assert len(self.store.list("page/").entries) == KEYS

    def list_botocore(self) -> None:
        page = self.botocore.list_objects_v2(Bucket=BUCKET, Prefix="bench/page/")
        assert len(page["Contents"]) == KEYS


class Parsers:
    """One page of a thousand keys, as it comes over the wire: only reading it is measured."""

    def __init__(self) -> None:
        from botocore.parsers import create_parser
        from botocore.session import Session

        model = Session().get_service_model("s3").operation_model("ListObjectsV2")
        self._shape = model.output_shape
        self._parser = create_parser("rest-xml")
        self.page = page(KEYS)

    def dfq(self) -> None:
        rows, _, _ = _core.parse_listing(self.page, "bench/")
        assert len(tuple(map(Stored._make, rows))) == KEYS

    def botocore(self) -> None:
        answer = {"body": self.page, "headers": {}, "status_code": 200}
        assert len(self._parser.parse(answer, self._shape)["Contents"]) == KEYS


def page(keys: int) -> bytes:
    """A page as S3 writes it."""
    entries = "".join(
        f"<Contents><Key>bench/pending/{number % 256:02x}/01k9x{number:021d}/task.json</Key>"
        "<LastModified>2026-11-18T09:03:00.000Z</LastModified>"
        f"<ETag>&quot;{number:032x}&quot;</ETag><Size>300</Size>"
        "<StorageClass>STANDARD</StorageClass></Contents>"
        for number in range(keys)
    )
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        f"<Name>bench</Name><Prefix>bench/</Prefix><KeyCount>{keys}</KeyCount>"
        f"<MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>"
    ).encode()


def medians(ours: Callable[[], None], theirs: Callable[[], None], each: int) -> tuple[float, float]:
    """CPU time of both in microseconds: the medians of several rounds in turns."""
    ours(), theirs()
    costs: dict[Callable[[], None], list[float]] = {ours: [], theirs: []}
    for _ in range(ROUNDS):
        for run in (ours, theirs):
            start_cpu = process_time()
            run()
            costs[run].append((process_time() - start_cpu) / each * 1e6)
    return median(costs[ours]), median(costs[theirs])


def compare(name: str, ours: Callable[[], None], theirs: Callable[[], None], each: int) -> None:
    """Print what both cost, and how many times cheaper ours is."""
    mine, bare = medians(ours, theirs, each)
    print(f"{name:34} dfq {mine:9.1f} µs   botocore {bare:9.1f} µs   {bare / mine:5.1f}x cheaper")


def main(names: list[str]) -> None:
    settings()
    for name in names or ["ministack"]:
        with (
            tempfile.TemporaryDirectory() as folder,
            start(name, Path(folder)) as server,
            closing(S3Store(server.url("bench"))) as store,
        ):
            subjects = Subjects(server, store)
            subjects.fill()
            where = f"({name}, port {urlsplit(server.endpoint).port})"
            print(f"CPU per request {where}, medians of {ROUNDS} rounds")
            compare("PUT of 300 bytes if absent", subjects.put_dfq, subjects.put_botocore, REQUESTS)
            compare("GET of 300 bytes", subjects.get_dfq, subjects.get_botocore, REQUESTS)
            compare("LIST of 1,000 keys", subjects.list_dfq, subjects.list_botocore, 1)
    parsers = Parsers()
    compare("reading a page of 1,000 keys", parsers.dfq, parsers.botocore, 1)


if __name__ == "__main__":
    main(sys.argv[1:])
