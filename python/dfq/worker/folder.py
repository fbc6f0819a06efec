"""Whether the folder of a queue is still the one that the worker began with."""

from __future__ import annotations

from pathlib import Path

from dfq.engines.file_folder import is_queue
from dfq.errors import InvalidURL
from dfq.opening import split


class Folder:
    """The folder of a queue, if it has one. One that was deleted does not come back by itself."""

    def __init__(self, url: str) -> None:
        try:
            scheme, rest = split(url)
        except InvalidURL:  # an engine that is not opened by URL
            scheme, rest = "", ""
        self._path = Path(rest) if scheme == "file" else None
        self._identity: tuple[int, int] | None = None

    def is_new(self) -> bool:
        """Whether the queue has to be made first."""
        return self._path is not None and not is_queue(str(self._path))

    def remember(self) -> None:
        """The queue has just worked, so the folder that is there is the one."""
        if self._path is not None and self._identity is None:
            self._identity = self._look()

    def is_gone(self) -> bool:
        """Whether the folder was deleted, or another stands in its place.

        The queue holds the old one open, so its inode can't be given to a new one.
        """
        return self._identity is not None and self._look() != self._identity

    def _look(self) -> tuple[int, int] | None:
        assert self._path is not None
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino
