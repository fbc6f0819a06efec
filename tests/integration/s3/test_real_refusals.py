"""What real servers refuse, and a server that goes away and comes back."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from dfq.errors import QueueUnavailable, StoreRefused, StoreUnsure
from dfq.stores.s3 import S3Store
from tests.servers import Server, start

pytestmark = pytest.mark.usefixtures("aws_settings")


def test_a_wrong_secret_is_refused_by_a_server_that_checks(running_server, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with closing(S3Store(running_server("seaweedfs").url("refusals"))) as store:
        for use in (lambda: store.create("key", b""), lambda: store.list("")):
            with pytest.raises(StoreRefused, match="AWS_SECRET_ACCESS_KEY"):
                use()


def test_an_unknown_access_key_is_refused_by_a_server_that_checks(running_server, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    with (
        closing(S3Store(running_server("seaweedfs").url("refusals"))) as store,
        pytest.raises(StoreRefused, match="AWS_ACCESS_KEY_ID"),
    ):
        store.create("key", b"")


@pytest.mark.parametrize("name", ["ministack", "seaweedfs", "moto"])
def test_a_bucket_that_is_not_there_is_told(running_server: Callable[[str], Server], name):
    url = running_server(name).url("q", bucket="no-such-bucket")
    with closing(S3Store(url)) as store:
        for use in (lambda: store.create("key", b""), lambda: store.list("")):
            with pytest.raises(StoreRefused, match="no such bucket"):
                use()


def test_a_server_that_goes_away_and_comes_back_is_used_again(tmp_path: Path):
    with start("ministack", tmp_path / "first") as server:
        store = S3Store(server.url("q"))
        store.create("key", b"")
    with closing(store):
        with pytest.raises(QueueUnavailable, match="check the network") as caught:
            store.create("other", b"")
        assert not isinstance(caught.value, StoreUnsure)
        port = int(server.endpoint.rsplit(":", 1)[1])
        with start("ministack", tmp_path / "second", port=port):
            store.create("other", b"")
            assert store.read("other").body == b""


def test_a_child_process_does_not_share_connections(running_server):
    with closing(S3Store(running_server("ministack").url("fork"))) as store:
        store.create("parent", b"")
        child = os.fork()
        if child == 0:
            try:
                store.create("child", b"")
                os._exit(0)
            except BaseException:
                os._exit(1)
        for number in range(20):
            store.put(f"meanwhile/{number}", b"")
        assert os.waitpid(child, 0)[1] == 0
        assert store.read("child") is not None
