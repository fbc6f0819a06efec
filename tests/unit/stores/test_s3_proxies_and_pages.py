"""Pages that are empty before the end, and proxies that want to know who asks."""

from __future__ import annotations

import base64
import socket
import threading
from contextlib import closing

import pytest

from dfq.errors import QueueUnavailable, StoreRefused
from dfq.stores.s3 import S3Store
from tests.servers import BUCKET
from tests.servers.scripted import Reply, scripted

pytestmark = pytest.mark.usefixtures("aws_settings")

EMPTY = Reply(
    200,
    b"<ListBucketResult><IsTruncated>true</IsTruncated>"
    b"<NextContinuationToken>go+on/here=</NextContinuationToken></ListBucketResult>",
)
LOST = Reply(200, b"<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>")
FULL = Reply(
    200,
    b"<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>q/a/k</Key>"
    b"<LastModified>2026-11-18T09:00:00.000Z</LastModified><ETag>&quot;e&quot;</ETag>"
    b"<Size>3</Size></Contents></ListBucketResult>",
)


def test_an_empty_page_before_the_end_is_gone_on_from():
    with scripted(EMPTY, EMPTY, FULL) as script, closing(S3Store(script.url())) as store:
        page = store.list("a/", "a/0")
    assert [entry.key for entry in page.entries] == ["a/k"]
    assert page.next is None
    first, *others = [seen.path for seen in script.seen]
    assert "start-after=q%2Fa%2F0" in first
    for path in others:
        assert "continuation-token=go%2Bon%2Fhere%3D" in path
        assert "prefix=q%2Fa%2F" in path
        assert "start-after" not in path


@pytest.mark.parametrize(("reply", "asked"), [(EMPTY, 100), (LOST, 1)])
def test_a_listing_without_end_is_told_and_not_read_for_ever(reply, asked):
    with (
        scripted(reply) as script,
        closing(S3Store(script.url())) as store,
        pytest.raises(QueueUnavailable, match="no end"),
    ):
        store.list("a/")
    assert len(script.seen) == asked


def test_a_proxy_is_told_who_asks(monkeypatch):
    heard = []

    def serve(listening):
        client, _ = listening.accept()
        with client:
            heard.append(client.recv(65536).decode())
            client.sendall(b"HTTP/1.1 407 Who are you\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        monkeypatch.setenv("HTTPS_PROXY", f"http://me:se%40cret@127.0.0.1:{port}")
        monkeypatch.setenv("NO_PROXY", "")
        monkeypatch.setattr("dfq.stores.s3_requests.TRIES", {})
        thread = threading.Thread(target=serve, args=(listening,))
        thread.start()
        store = S3Store(f"s3://{BUCKET}/q?endpoint=https://store.invalid&addressing=path")
        with closing(store), pytest.raises(QueueUnavailable, match="407") as caught:
            store.read("key")
        thread.join(20)
    assert "CONNECT store.invalid:443" in heard[0]
    proof = base64.b64encode(b"me:se@cret").decode()
    assert f"Proxy-Authorization: Basic {proof}\r\n" in heard[0]
    assert "cret" not in str(caught.value)


@pytest.mark.parametrize("proxy", ["http://me:secret@:1", "http://me:secret@host:none"])
def test_a_proxy_that_is_no_url_is_told_without_its_secret(monkeypatch, proxy):
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    monkeypatch.setenv("NO_PROXY", "")
    with pytest.raises(StoreRefused, match="mend HTTPS_PROXY") as caught:
        S3Store(f"s3://{BUCKET}/q?endpoint=https://store.invalid&addressing=path")
    assert "secret" not in str(caught.value)
