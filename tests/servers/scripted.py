"""A server that says what it is told: the bad days no real one has on demand."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.servers import BUCKET


@dataclass
class Reply:
    """One answer. ``cut`` closes the connection within the body, ``silent`` before the answer."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False
    silent: bool = False
    hold: threading.Event | None = None


def error(status: int, code: str, message: str = "told so") -> Reply:
    """An error as S3 says it."""
    body = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
    return Reply(status, body.encode(), {"Content-Type": "application/xml"})


@dataclass
class Seen:
    """One request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Scripted:
    """The replies still to be given; the last one is given for ever."""

    def __init__(self, replies: list[Reply]) -> None:
        self.replies = replies
        self.seen: list[Seen] = []
        self.endpoint = ""

    def url(self, prefix: str = "q", **parameters: object) -> str:
        extra = "".join(f"&{name}={value}" for name, value in parameters.items())
        return f"s3://{BUCKET}/{prefix}?endpoint={self.endpoint}&addressing=path{extra}"

    def next(self, seen: Seen) -> Reply:
        self.seen.append(seen)
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]


@contextmanager
def scripted(
    *replies: Reply, wrap: Callable[[socket.socket], socket.socket] | None = None
) -> Iterator[Scripted]:
    """Serve the replies in turn. ``wrap`` puts TLS around the listening socket."""
    script = Scripted(list(replies))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            body = self.rfile.read(length)
            reply = script.next(Seen(self.command, self.path, dict(self.headers), body))
            if reply.hold is not None:
                reply.hold.wait(30)
            if reply.silent or reply.hold is not None:
                self.close_connection = True
                return
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(reply.body) + 100 * reply.cut))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(reply.body)
            self.close_connection = reply.cut

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_any

        def date_time_string(self, timestamp: float | None = None) -> str:
            return "Wed, 18 Nov 2026 09:03:00 GMT"

        def log_message(self, format: str, *args: object) -> None:
            """Nobody reads it."""

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            """A client that goes away is part of the script."""

    server = Quiet(("127.0.0.1", 0), Handler)
    if wrap is not None:
        server.socket = wrap(server.socket)
    scheme = "http" if wrap is None else "https"
    script.endpoint = f"{scheme}://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield script
    finally:
        for reply in script.replies:
            if reply.hold is not None:
                reply.hold.set()
        server.shutdown()
        server.server_close()
        thread.join(10)
