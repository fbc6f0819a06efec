"""Files on this machine that go into a store, or come out of it: of any size, never in memory."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Final, cast

#: So much of a file is in memory at once.
CHUNK_BYTES: Final = 1 << 20

_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def new_file(path: str) -> Iterator[IO[bytes]]:
    """A file that was not there; if the block fails, it is gone again."""
    handle = os.open(path, _NEW, 0o600)
    try:
        with os.fdopen(handle, "w+b") as file:
            yield file
    except BaseException:
        remove(path)
        raise


def remove(path: str) -> None:
    """Delete a file, if it is there."""
    with suppress(FileNotFoundError):
        os.unlink(path)


def open_file(path: str) -> IO[bytes]:
    """A file to send; no symlink is followed."""
    return os.fdopen(os.open(path, _OLD), "rb")


def copy(source: IO[bytes], target: IO[bytes], length: int) -> int:
    """Copy so many bytes, or what there is; how many there were."""
    left = length
    while left > 0:
        chunk = source.read(min(left, CHUNK_BYTES))
        if not chunk:
            break
        target.write(chunk)
        left -= len(chunk)
    return length - left


class FileBody:
    """A file as the body of a request: read once for its hash, and once for every try."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self._sha256 = hashlib.file_digest(cast("io.BufferedReader", file), "sha256").hexdigest()
        self._size = file.tell()

    def rewound(self, headers: dict[str, str]) -> str:
        """Begin again; the sha256 that the request is signed with. Adds the length."""
        self.file.seek(0)
        headers["Content-Length"] = str(self._size)
        return self._sha256
