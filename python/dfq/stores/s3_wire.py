"""HTTP to one bucket: connections kept for the next request, and no retries of its own.

Three things can come of a request: an answer, the certainty that it was not sent (Unreached), or
no answer to one that may have been carried out (NoAnswer). Which one it was decides what a caller
may do next, so nothing here turns one into another.
"""

from __future__ import annotations

import base64
import http.client
import io
import os
import select
import ssl
import threading
from dataclasses import dataclass
from typing import IO, Any, Final, NamedTuple, cast

from dfq.ambient import Clock
from dfq.errors import StoreRefused
from dfq.store import MAX_BODY_BYTES
from dfq.stores.files import CHUNK_BYTES
from dfq.stores.s3_account import Place
from dfq.stores.s3_address import without_secrets
from dfq.stores.s3_pace import Paced, TooSlow

_CONNECT_SECONDS = 5.0
#: Routers forget a silent connection without telling; a request on it would get no answer.
_IDLE_SECONDS: Final = 50.0


class Unreached(Exception):
    """The request was not sent."""


class NoAnswer(Exception):
    """The request was sent, perhaps in part, and no whole answer came."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes
    #: The body is larger than any of ours; it was not read.
    too_large: bool = False

    def header(self, name: str) -> str | None:
        """A header of the answer."""
        return self.headers.get(name)


class _Lines:
    """The lines of a head, of which the last must be there: the library takes an end for it."""

    def __init__(self, stream: io.BufferedReader) -> None:
        self._stream = stream
        self._begun = False

    def readline(self, limit: int) -> bytes:
        """The next line. At the end of a stream that has not begun there is none."""
        line = self._stream.readline(limit)
        if not line.endswith(b"\n") and (line or self._begun):
            raise http.client.IncompleteRead(line)
        self._begun = True
        return line

    def close(self) -> None:
        """Close the stream."""
        self._stream.close()


class _WholeHead(http.client.HTTPResponse):
    """An answer whose head must be whole: of half an ETag, or no length, nothing good comes."""

    def begin(self) -> None:
        """Read the head."""
        stream = self.fp
        self.fp = cast("io.BufferedReader", _Lines(stream))
        try:
            super().begin()
        finally:
            # What is no HTTP at all was closed in there.
            if self.fp is not None:
                self.fp = stream


class _InOnePiece(http.client.HTTPConnection):
    """A connection that sends head and body together: one packet, and one wake-up, less."""

    response_class = _WholeHead
    _pieces: list[bytes] | None = None

    def gather(self) -> None:
        """Keep what is sent from here on."""
        self._pieces = []

    def send_gathered(self) -> None:
        """Send what was kept."""
        pieces, self._pieces = self._pieces or [], None
        super().send(b"".join(pieces))

    def send(self, data: Any) -> None:
        """Send, or keep for later; the talk with a proxy is not kept."""
        if self._pieces is None:
            super().send(data)
        else:
            self._pieces.append(data)


class _InOnePieceTLS(_InOnePiece, http.client.HTTPSConnection):
    """The same over TLS."""


class Wire:
    """Connections to one place, as many as there are threads that send at once."""

    def __init__(
        self, place: Place, *, timeout_seconds: float, keep_connections: int, clock: Clock
    ) -> None:
        self._place = place
        self._timeout = timeout_seconds
        self._keep = keep_connections
        self._clock = clock
        self._tls = _tls_context(place)
        self._proxy = _proxy_for(place)
        self._lock = threading.Lock()
        self._idle: list[tuple[_InOnePiece, float]] = []
        self._process = os.getpid()

    def send(
        self,
        method: str,
        target: str,
        headers: dict[str, str],
        body: bytes | IO[bytes],
        into: IO[bytes] | None = None,
    ) -> Answer:
        """One request and its answer; what was asked for goes ``into`` a file, if one is given."""
        connection = self._connection()
        try:
            cast("Paced", connection.sock).begin()
            if isinstance(body, bytes):
                connection.gather()
                connection.request(method, target, body, headers)
                connection.send_gathered()
                response = connection.getresponse()
            else:
                response = _stream(connection, method, target, headers, body)
            answer = _read(response, into)
        except (OSError, http.client.HTTPException, ValueError) as error:
            connection.close()
            raise NoAnswer(_reason(error, self._timeout)) from None
        except BaseException:
            connection.close()
            raise
        if response.will_close or answer.too_large:
            connection.close()
        else:
            self._put_back(connection)
        return answer

    def close(self) -> None:
        """Close the connections that are not in use."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection, _ in idle:
            connection.close()

    def _connection(self) -> _InOnePiece:
        now = self._clock.boot()
        while True:
            with self._lock:
                if self._process != os.getpid():
                    # After a fork both sides hold these; they stay with the parent.
                    self._idle, self._process = [], os.getpid()
                if not self._idle:
                    break
                connection, since = self._idle.pop()
            if now - since <= _IDLE_SECONDS and _is_quiet(connection):
                return connection
            connection.close()
        return self._connect()

    def _put_back(self, connection: _InOnePiece) -> None:
        with self._lock:
            if len(self._idle) < self._keep:
                self._idle.append((connection, self._clock.boot()))
                return
        connection.close()

    def _connect(self) -> _InOnePiece:
        place = self._place
        host, port = (place.host, place.port) if self._proxy is None else self._proxy[:2]
        connection: _InOnePiece
        if self._tls is None:
            connection = _InOnePiece(host, port, timeout=_CONNECT_SECONDS)
        else:
            connection = _InOnePieceTLS(host, port, timeout=_CONNECT_SECONDS, context=self._tls)
        if self._proxy is not None:
            connection.set_tunnel(place.host, place.port, self._proxy.headers)
        try:
            connection.connect()
            connection.sock = Paced(connection.sock, self._timeout, self._clock)
        except ssl.SSLError as error:
            connection.close()
            raise StoreRefused(_tls_advice(place, error)) from None
        except (OSError, ValueError) as error:
            connection.close()
            raise Unreached(_reason(error, _CONNECT_SECONDS)) from None
        return connection


def _stream(
    connection: _InOnePiece, method: str, target: str, headers: dict[str, str], body: IO[bytes]
) -> http.client.HTTPResponse:
    """Send a body piece by piece. Who has heard enough answers, and hangs up on the rest."""
    connection.blocksize = CHUNK_BYTES
    connection.putrequest(method, target, skip_host="Host" in headers, skip_accept_encoding=True)
    for name, value in headers.items():
        connection.putheader(name, value)
    try:
        connection.endheaders(body)
    except (BrokenPipeError, ConnectionResetError):
        response = connection.getresponse()
        if response.status < 400:
            raise
        response.will_close = True
        return response
    return connection.getresponse()


def _read(response: http.client.HTTPResponse, into: IO[bytes] | None) -> Answer:
    length = response.length
    if into is not None and 200 <= response.status < 300:
        return _read_into(response, into)
    if length is not None and length > MAX_BODY_BYTES:
        return Answer(response.status, response.headers, b"", too_large=True)
    # With a length, only a read of everything notices that some is missing.
    body = response.read() if length is not None else response.read(MAX_BODY_BYTES + 1)
    if len(body) > MAX_BODY_BYTES:
        return Answer(response.status, response.headers, b"", too_large=True)
    if length is None:
        # The end of a body in pieces is a piece of its own.
        response.read(1)
    return Answer(response.status, response.headers, body)


def _read_into(response: http.client.HTTPResponse, into: IO[bytes]) -> Answer:
    while chunk := response.read(CHUNK_BYTES):
        into.write(chunk)
    if response.length:
        raise http.client.IncompleteRead(b"", response.length)
    return Answer(response.status, response.headers, b"")


def _is_quiet(connection: http.client.HTTPConnection) -> bool:
    """Whether nothing waits to be read: what would come unasked is the end."""
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return not poll.poll(0)


def _tls_context(place: Place) -> ssl.SSLContext | None:
    if place.scheme != "https":
        return None
    try:
        return ssl.create_default_context(cafile=place.certificates)
    except OSError as error:
        raise StoreRefused(
            f"the certificates in {place.certificates} can't be read: {error}; check AWS_CA_BUNDLE"
        ) from None


class _Proxy(NamedTuple):
    host: str
    port: int
    #: What proves who we are, if it is to be proved.
    headers: dict[str, str]


def _proxy_for(place: Place) -> _Proxy | None:
    """The proxy that the environment names; plain HTTP, as in a local network, goes directly."""
    if place.scheme != "https":
        return None
    from urllib.parse import unquote, urlsplit
    from urllib.request import getproxies, proxy_bypass

    proxy = getproxies().get("https")
    if not proxy or proxy_bypass(place.host):
        return None
    try:
        parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if host is None:
        raise StoreRefused(f"the proxy {without_secrets(proxy)!r} is no URL; mend HTTPS_PROXY")
    headers = {}
    if parts.username is not None:
        known = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
        headers["Proxy-Authorization"] = f"Basic {base64.b64encode(known).decode()}"
    return _Proxy(host, port or 3128, headers)


def _tls_advice(place: Place, error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"{place.origin} shows a certificate that is not trusted: {error.verify_message}; "
            "check this machine's clock, name the store's authority in AWS_CA_BUNDLE, "
            "or mend the endpoint"
        )
    return (
        f"{place.origin} does not speak TLS as expected: {error.reason or error}; "
        "if it is a plain HTTP server, write endpoint=http://…"
    )


def _reason(error: Exception, timeout: float) -> str:
    if isinstance(error, TooSlow):
        return f"it takes too long: {error}"
    if isinstance(error, TimeoutError):
        return f"no answer within {timeout:g} s"
    if isinstance(error, http.client.IncompleteRead):
        return "the answer was cut off"
    if isinstance(error, http.client.RemoteDisconnected):
        return "the connection was closed before the answer"
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return f"the answer is no HTTP ({type(error).__name__})"
