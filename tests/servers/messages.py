"""HTTP messages as they are on the wire: read whole, kept byte for byte."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import BinaryIO

MAX_HEAD_BYTES = 64 * 1024
MAX_BODY_BYTES = 64 * 1024 * 1024


class BrokenMessage(Exception):
    """A message ended too early, or is none that S3 and its clients would send."""


@dataclass(frozen=True)
class Message:
    """A request or an answer."""

    #: Up to the empty line, and with it.
    head: bytes
    #: As it was sent: in pieces, with their sizes before them, if it came so.
    body: bytes

    @property
    def raw(self) -> bytes:
        return self.head + self.body

    @property
    def first_line(self) -> list[str]:
        return self.head.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)

    @property
    def method(self) -> str:
        return self.first_line[0]

    @property
    def status(self) -> int:
        return int(self.first_line[1])

    @cached_property
    def headers(self) -> dict[str, str]:
        """By their names in lower case."""
        lines = self.head.decode("latin-1").split("\r\n")[1:-2]
        pairs = (line.partition(":") for line in lines)
        return {name.strip().lower(): value.strip() for name, _, value in pairs}

    @property
    def is_conditional_write(self) -> bool:
        """Whether S3 could call it a conflict with another."""
        conditional = "if-match" in self.headers or "if-none-match" in self.headers
        return conditional and self.method in ("PUT", "POST", "DELETE")


def read_request(stream: BinaryIO, go_on: Callable[[], object]) -> Message | None:
    """The next request; None at the end of the connection.

    ``go_on`` is called if the client waits to be told so before it sends the body.
    """
    head = _read_head(stream)
    if head is None:
        return None
    request = Message(head, b"")
    if request.headers.get("expect", "").lower() == "100-continue":
        go_on()
    length = request.headers.get("content-length", "0")
    return Message(head, _read_body(stream, request, int(length)))


def read_answer(stream: BinaryIO, method: str) -> Message:
    """The answer to a request of this method."""
    while True:
        head = _read_head(stream)
        if head is None:
            raise BrokenMessage("the connection was closed before the answer")
        answer = Message(head, b"")
        # 100 and the like only announce the answer.
        if answer.status >= 200:
            break
    if method == "HEAD" or answer.status in (204, 304):
        return answer
    length = answer.headers.get("content-length")
    return Message(head, _read_body(stream, answer, None if length is None else int(length)))


def _read_head(stream: BinaryIO) -> bytes | None:
    lines: list[bytes] = []
    size = 0
    while not lines or lines[-1] != b"\r\n":
        line = stream.readline(MAX_HEAD_BYTES)
        if not line and not lines:
            return None
        size += len(line)
        if not line.endswith(b"\r\n") or size > MAX_HEAD_BYTES:
            raise BrokenMessage(f"no whole head: {line[-80:]!r}")
        lines.append(line)
    return b"".join(lines)


def _read_body(stream: BinaryIO, message: Message, length: int | None) -> bytes:
    if message.headers.get("transfer-encoding", "").lower() == "chunked":
        return _read_pieces(stream)
    if length is None:
        return stream.read(MAX_BODY_BYTES)
    return _read_exactly(stream, length)


def _read_pieces(stream: BinaryIO) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while size <= MAX_BODY_BYTES:
        line = stream.readline(MAX_HEAD_BYTES)
        length = int(line.split(b";")[0] or b"-", 16)
        # Every piece ends with an empty line; so does the last, which is empty itself.
        piece = _read_exactly(stream, length + 2)
        pieces += [line, piece]
        size += len(line) + len(piece)
        if length == 0:
            return b"".join(pieces)
    raise BrokenMessage(f"the body has more than {MAX_BODY_BYTES} bytes")


def _read_exactly(stream: BinaryIO, length: int) -> bytes:
    if length > MAX_BODY_BYTES:
        raise BrokenMessage(f"a body of {length} bytes")
    body = stream.read(length)
    if len(body) < length:
        raise BrokenMessage(f"{length - len(body)} of {length} bytes are missing")
    return body
