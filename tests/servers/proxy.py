"""A proxy that drops, delays, cuts and repeats: the network on a bad day, to order.

It stands in front of an S3 server on this machine and passes requests on byte for byte, so that
signatures hold (the Host that was signed is the proxy's, and the server takes it as it comes).
What goes wrong with each is drawn from a :class:`~tests.servers.misfortune.Plan`.
"""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import replace
from socketserver import StreamRequestHandler, ThreadingTCPServer
from urllib.parse import urlsplit

from tests.servers import BUCKET, Server
from tests.servers.messages import BrokenMessage, Message, read_answer, read_request
from tests.servers.misfortune import Misfortune, Plan

#: Longer than a contended key of SeaweedFS takes.
TIMEOUT_SECONDS = 100.0
#: So many late requests arrive at once.
COURIERS = 4


def _refusal(status: str, code: str) -> bytes:
    body = f"<Error><Code>{code}</Code><Message>by the proxy</Message></Error>".encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


_REFUSALS = {
    "slow_down": _refusal("503 Slow Down", "SlowDown"),
    "server_error": _refusal("500 Internal Server Error", "InternalError"),
    "conflict": _refusal("409 Conflict", "ConditionalRequestConflict"),
}


class Proxy:
    """The proxy while it runs. Its plan may be changed at any time; None: all goes well."""

    def __init__(self, server: Server, plan: Plan | None) -> None:
        self.plan = plan
        self.endpoint = ""
        self._name = f"{server.name} behind a proxy"
        parts = urlsplit(server.endpoint)
        self._upstream = (str(parts.hostname), int(parts.port or 80))
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._later_answers: Counter[str] = Counter()
        self._served = 0
        self._under_way: list[tuple[int, Message]] = []
        self._deliveries: set[Future[None]] = set()
        self._couriers = ThreadPoolExecutor(COURIERS, "late-request")
        self._sockets: set[socket.socket] = set()
        self._closed = threading.Event()

    @property
    def server(self) -> Server:
        """What clients see of it."""
        return Server(self._name, self.endpoint)

    def url(self, prefix: str, bucket: str = BUCKET, **parameters: object) -> str:
        """An s3:// URL that leads through the proxy."""
        return self.server.url(prefix, bucket, **parameters)

    @property
    def counts(self) -> dict[str, int]:
        """How many requests had each fate; "passed" had none, "broken" met a broken server."""
        with self._lock:
            return dict(self._counts)

    @property
    def later_answers(self) -> dict[str, int]:
        """What the server answered to what came late or again: ``{"PUT 412": 3}``."""
        with self._lock:
            return dict(self._later_answers)

    def deliver_all(self) -> int:
        """Let every late request arrive, and wait until all have; how many had not left yet."""
        with self._lock:
            left, self._under_way = self._under_way, []
            for _, request in left:
                self._send_off(request)
            deliveries = set(self._deliveries)
        wait(deliveries)
        return len(left)

    def serve(self, request: Message, client: socket.socket, upstream: _Upstream) -> bool:
        """Let happen to a request what must; whether the connection can be used again."""
        drawn = self._begin(request)
        fate = drawn.fate
        if fate in _REFUSALS:
            client.sendall(_REFUSALS[fate])
            return True
        if fate == "late":
            self._post(request, drawn.later)
        if fate in ("late", "lost"):
            return False
        if fate == "delayed":
            self._closed.wait(drawn.seconds)
        answer = upstream.ask(request)
        if fate == "second_answer":
            answer = upstream.ask(request)
        if fate == "repeated":
            self._post(request, drawn.later)
        sent = _what_is_left(answer, drawn)
        client.sendall(sent)
        return sent == answer.raw and answer.headers.get("connection", "").lower() != "close"

    def broken(self) -> None:
        """The server gave no whole answer."""
        with self._lock:
            self._counts["broken"] += 1

    def opened(self, connection: socket.socket) -> None:
        """A connection is to be ended with the proxy."""
        with self._lock:
            self._sockets.add(connection)
            if self._closed.is_set():
                _end(connection)

    def ended(self, connection: socket.socket) -> None:
        """A connection is being closed."""
        with self._lock:
            self._sockets.discard(connection)

    def connect(self) -> _Upstream:
        """A connection to the server; made when first used."""
        return _Upstream(self, self._upstream)

    def close(self) -> None:
        """End all connections; what had not arrived yet never does."""
        self._closed.set()
        with self._lock:
            self._under_way.clear()
            for connection in self._sockets:
                _end(connection)
        self._couriers.shutdown(cancel_futures=True)

    def _begin(self, request: Message) -> Misfortune:
        with self._lock:
            plan = self.plan
            drawn = Misfortune() if plan is None else plan.draw()
            if drawn.fate == "conflict" and not request.is_conditional_write:
                drawn = replace(drawn, fate=None)
            self._counts[drawn.fate or "passed"] += 1
            self._served += 1
            due = [one for one in self._under_way if one[0] <= self._served]
            for one in due:
                self._under_way.remove(one)
                self._send_off(one[1])
            return drawn

    def _post(self, request: Message, later: int) -> None:
        with self._lock:
            self._under_way.append((self._served + later, request))

    def _send_off(self, request: Message) -> None:
        if not self._closed.is_set():
            self._deliveries = {one for one in self._deliveries if not one.done()}
            self._deliveries.add(self._couriers.submit(self._deliver, request))

    def _deliver(self, request: Message) -> None:
        upstream = self.connect()
        try:
            status = upstream.ask(request).status
        except BrokenMessage:
            self.broken()
        else:
            with self._lock:
                self._later_answers[f"{request.method} {status}"] += 1
        finally:
            upstream.close()


class _Upstream:
    """A connection to the server behind the proxy."""

    def __init__(self, proxy: Proxy, address: tuple[str, int]) -> None:
        self._proxy = proxy
        self._address = address
        self._socket: socket.socket | None = None

    def ask(self, request: Message) -> Message:
        """Send a request as it came; its answer."""
        try:
            if self._socket is None:
                self._connect()
            self._socket.sendall(request.raw)
            answer = read_answer(self._stream, request.method)
        except OSError as error:
            raise BrokenMessage(str(error)) from None
        if answer.headers.get("connection", "").lower() == "close":
            self.close()
        return answer

    def _connect(self) -> None:
        self._socket = socket.create_connection(self._address, TIMEOUT_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = self._socket.makefile("rb")
        self._proxy.opened(self._socket)

    def close(self) -> None:
        """Close it; it may be used again."""
        if self._socket is not None:
            self._proxy.ended(self._socket)
            self._stream.close()
            self._socket.close()
            self._socket = None


def _what_is_left(answer: Message, drawn: Misfortune) -> bytes:
    """The bytes of an answer that come through; of one that is cut never all."""
    if drawn.fate == "lost_answer":
        return b""
    if drawn.fate == "cut_head":
        # Behind the first byte at the earliest, else it would be a lost answer.
        return answer.head[: 1 + int(drawn.place * (len(answer.head) - 1))]
    if drawn.fate == "cut_body":
        left = answer.body[: int(drawn.place * len(answer.body))]
        return answer.head + left if answer.body else b""
    return answer.raw


def _end(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


@contextmanager
def faulty_proxy(server: Server, plan: Plan | None = None, port: int = 0) -> Iterator[Proxy]:
    """Run a proxy in front of a server until the end of the block; 0: on any port."""
    proxy = Proxy(server, plan)

    class Talk(StreamRequestHandler):
        """One client's connection."""

        timeout = TIMEOUT_SECONDS
        disable_nagle_algorithm = True

        def handle(self) -> None:
            proxy.opened(self.connection)
            upstream = proxy.connect()
            try:
                while (request := self._next_request()) is not None:
                    if not proxy.serve(request, self.connection, upstream):
                        return
            except BrokenMessage:
                proxy.broken()
            except OSError:
                # A client that goes away: so do we.
                return
            finally:
                upstream.close()
                proxy.ended(self.connection)

        def _next_request(self) -> Message | None:
            return read_request(
                self.rfile, lambda: self.connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            )

    class Listener(ThreadingTCPServer):
        # Many threads connect at once, again and again.
        request_queue_size = 128
        # Handlers end with their connections, and are waited for.
        daemon_threads = False

    listener = Listener(("127.0.0.1", port), Talk)
    proxy.endpoint = f"http://127.0.0.1:{listener.server_address[1]}"
    thread = threading.Thread(target=listener.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        listener.shutdown()
        thread.join(10)
        proxy.close()
        listener.server_close()
