"""USV as the commands see it: the core's reader and writer, with errors of our tree."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Any

from dfq import _core
from dfq.errors import DfqError

_CHUNK = 1 << 16
_LOT = 1_000


class BadFile(DfqError, ValueError):
    """The file is not what it should be: mend the record it names."""

    exit_code = 65


class NoFile(DfqError, OSError):
    """There is no such file, or it can't be read."""

    exit_code = 66


def usv_records(stream: IO[bytes], limit: int) -> Iterator[tuple[int, list[str] | str]]:
    """Numbered records; a text in place of one says what is wrong with it.

    The form with symbols (␟ ␞) is known by what the stream begins with.
    """
    beginning = b""
    while len(beginning) < _CHUNK and (more := stream.read(_CHUNK - len(beginning))):
        beginning += more
    visible = _core.usv_is_visible(beginning)
    feed = _core.UsvFeed(visible=visible, max_record_bytes=limit)
    chunk = beginning
    while True:
        feed.feed(chunk)
        yield from _waiting(feed)
        if not chunk:
            return
        chunk = stream.read(_CHUNK)


def _waiting(feed: _core.UsvFeed) -> Iterator[tuple[int, list[str] | str]]:
    while True:
        before = feed.records_read
        try:
            rows = feed.read(_LOT)
        except ValueError as error:
            number = feed.records_read
            yield number, str(error).removeprefix(f"record {number} is ")
            continue
        if not rows:
            return
        yield from enumerate(rows, before + 1)


def usv_bytes(rows: list[list[str]]) -> bytes:
    """Rows in canonical form."""
    return _core.join_usv(rows)


def looked_through(path: str, columns: int | None, visible: bool) -> dict[str, Any]:
    """What a check of a file found."""
    try:
        return _core.check_usv(path, columns, visible)
    except _core.CoreError as error:
        raise NoFile(error.args[1]) from None


def counted_records(path: str, visible: bool) -> int:
    """How many records a file has."""
    try:
        return _core.count_usv(path, visible)
    except _core.CoreError as error:
        raise NoFile(error.args[1]) from None


def looks_visible(path: str) -> bool:
    """Whether a file is in the form with symbols."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - pathlib is slow to import
            return _core.usv_is_visible(file.read(_CHUNK))
    except OSError as error:
        raise NoFile(f"{path} can't be read: {error.strerror}") from None
