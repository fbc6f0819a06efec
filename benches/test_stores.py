"""Requests to a bucket under pytest-benchmark, beside botocore's own; compare within a group.

``python -m benches.stores`` prints the ratios in CPU time, which is what a Pi is short of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from benches.stores import Parsers, Subjects
from dfq.stores.s3 import S3Store
from tests.servers import Server

pytest_plugins = ["tests.servers.fixtures"]
pytestmark = pytest.mark.timeout(600)

ROUNDS = 3


@pytest.fixture
def subjects(running_server: Callable[[str], Server], aws_settings: None) -> Iterator[Subjects]:
    server = running_server("ministack")
    with closing(S3Store(server.url("bench"))) as store:
        made = Subjects(server, store)
        made.fill()
        yield made
        store.delete_many(
            entry.key for prefix in ("put/", "bare/") for entry in store.list(prefix).entries
        )


@pytest.mark.parametrize("by", ["dfq", "botocore"])
@pytest.mark.parametrize("request_kind", ["put", "get", "list"])
def test_requests(benchmark: Any, subjects: Subjects, request_kind: str, by: str) -> None:
    benchmark.group = f"{request_kind} on ministack"
    benchmark.pedantic(getattr(subjects, f"{request_kind}_{by}"), rounds=ROUNDS)


@pytest.mark.parametrize("by", ["dfq", "botocore"])
def test_reading_a_page(benchmark: Any, by: str) -> None:
    benchmark.group = "reading a page of 1,000 keys"
    benchmark.pedantic(getattr(Parsers(), by), rounds=ROUNDS)
