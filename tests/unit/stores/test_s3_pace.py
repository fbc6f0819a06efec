"""Servers that send something now and then, but never all of it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from dfq.errors import QueueUnavailable
from dfq.store import MAX_BODY_BYTES
from dfq.stores.s3 import S3Store
from dfq.stores.s3_pace import BYTES_PER_SECOND, Paced, TooSlow
from dfq.testing import FakeClock
from tests.servers import BUCKET
from tests.servers.scripted import Reply, scripted

pytestmark = pytest.mark.usefixtures("aws_settings")

DATED = {"ETag": '"e1"', "Last-Modified": "Wed, 18 Nov 2026 09:00:00 GMT"}
HEAD = b"HTTP/1.1 200 OK\r\nDate: Wed, 18 Nov 2026 09:03:00 GMT\r\n"
BODY_HEAD = (
    HEAD
    + b'ETag: "e1"\r\nLast-Modified: Wed, 18 Nov 2026 09:00:00 GMT\r\nContent-Length: 900\r\n\r\n'
)
#: So often a byte is sent; far within the timeout, and for far longer.
DRIP_SECONDS = 0.05
DRIPS = 900
GIVEN_UP = r"it takes too long|no answer within"


@contextmanager
def dripping(begin: bytes) -> Iterator[str]:
    """A server that begins with this, then sends a byte at a time; its URL for a store."""
    over = threading.Event()

    def serve() -> None:
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=drip, args=(client,), daemon=True).start()

    def drip(client: socket.socket) -> None:
        with client:
            try:
                client.recv(65536)
                client.sendall(begin)
                for _ in range(DRIPS):
                    if over.wait(DRIP_SECONDS):
                        return
                    client.sendall(b"x")
            except OSError:
                return

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=serve, daemon=True).start()
        port = listening.getsockname()[1]
        try:
            yield (f"s3://{BUCKET}/q?endpoint=http://127.0.0.1:{port}&addressing=path&timeout=0.3")
        finally:
            over.set()


@pytest.mark.parametrize("begin", [BODY_HEAD, HEAD, b"HTTP/1.1 200 OK\r\nX-Long: "])
def test_an_answer_that_drips_is_given_up_on(begin):
    with (
        dripping(begin) as url,
        closing(S3Store(url)) as store,
        pytest.raises(QueueUnavailable, match=GIVEN_UP),
    ):
        store.read("key")


def test_a_file_that_drips_is_given_up_on(tmp_path: Path):
    with (
        dripping(BODY_HEAD) as url,
        closing(S3Store(url)) as store,
        pytest.raises(QueueUnavailable, match=GIVEN_UP),
    ):
        store.fetch("key", str(tmp_path / "copy"))
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize("size", [0, 1, MAX_BODY_BYTES])
def test_a_large_body_goes_through_whole_in_both_directions(size):
    body = bytes(size)
    with scripted(Reply(200, body, DATED)) as script, closing(S3Store(script.url())) as store:
        assert store.put("key", body) == "e1"
        assert script.seen[-1].body == body
        assert store.read("key").body == body


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_time_is_left_as_long_as_bytes_come(pair):
    ours, theirs = pair
    clock = FakeClock()
    paced = Paced(ours, 10.0, clock)
    stream = paced.makefile("rb")
    for _ in range(20):
        theirs.sendall(bytes(2 * BYTES_PER_SECOND))
        clock.advance(2.0)
        assert len(stream.read(2 * BYTES_PER_SECOND)) == 2 * BYTES_PER_SECOND
    clock.advance(9.0)
    theirs.sendall(b"x")
    assert stream.read(1) == b"x"
    clock.advance(2.0)
    with pytest.raises(TooSlow):
        stream.read(1)
    paced.begin()
    theirs.sendall(b"y")
    assert stream.read(1) == b"y"
    stream.close()
