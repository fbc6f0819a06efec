"""An answer that ends within its head is no answer, wherever it ends."""

from __future__ import annotations

from contextlib import closing

import pytest

from dfq.errors import QueueUnavailable, StoreRefused, StoreUnsure
from dfq.stores.s3 import S3Store
from dfq.testing import SeededChance
from tests.servers import Server
from tests.servers.misfortune import Plan
from tests.servers.proxy import faulty_proxy
from tests.servers.scripted import Reply, scripted

pytestmark = pytest.mark.usefixtures("aws_settings")

# More than there are bytes in the head, so that nearly every place is cut once.
CUTS = 400
DATED = {"ETag": '"e1"', "Last-Modified": "Wed, 18 Nov 2026 09:00:00 GMT"}


@pytest.fixture(params=[b"", b"body"], ids=["empty", "body"])
def store(request):
    plan = Plan(SeededChance(1), {"cut_head": 1.0})
    with (
        scripted(Reply(200, request.param, DATED)) as script,
        faulty_proxy(Server("scripted", script.endpoint), plan) as proxy,
        closing(S3Store(proxy.url("q"))) as store,
    ):
        yield store


def test_a_write_is_unsure(store):
    for _ in range(CUTS):
        with pytest.raises(StoreUnsure, match="cut off"):
            store.create("key", b"body")


def test_a_read_is_tried_again_and_told(store, monkeypatch):
    monkeypatch.setattr("dfq.stores.s3_requests.FIRST_WAIT_SECONDS", 0.0)
    for _ in range(CUTS // 3):
        with pytest.raises(QueueUnavailable, match="cut off") as caught:
            store.read("key")
        assert not isinstance(caught.value, StoreRefused)
