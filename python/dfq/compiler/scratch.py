"""Folders for files on their way, each locked while its user lives.

The kernel drops the lock when a process dies, however it dies, and whoever comes next removes what
it left. A sweeper locks a folder before it removes it; so a process that lost this race, between
making its folder and locking it, finds it gone and makes another.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from dfq.errors import QueueBusy

_PREFIX: Final = "dfq-index-"
_TRIES: Final = 100
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def scratch_folder(parent: str | None) -> Iterator[str]:
    """A new folder for the time of the block, in the system's temporary one unless named."""
    path, handle = _locked_folder(parent)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(handle)


def _locked_folder(parent: str | None) -> tuple[str, int]:
    for _ in range(_TRIES):
        path = tempfile.mkdtemp(prefix=_PREFIX, dir=parent)
        handle = -1
        with suppress(FileNotFoundError):
            handle = os.open(path, _FOLDER)
            if _lock(handle) is not False and os.path.isdir(path):  # noqa: PTH112
                return path, handle
        if handle >= 0:
            os.close(handle)
        shutil.rmtree(path, ignore_errors=True)
    raise QueueBusy(f"new folders in {parent or tempfile.gettempdir()} are taken away; try again")


def sweep_scratch(parent: str | None) -> int:
    """Remove the folders of those who died; how many."""
    swept = 0
    with suppress(OSError), os.scandir(parent or tempfile.gettempdir()) as entries:
        for entry in entries:
            if entry.name.startswith(_PREFIX):
                with suppress(OSError):
                    swept += _swept(entry.path)
    return swept


def _swept(path: str) -> bool:
    handle = os.open(path, _FOLDER)
    try:
        # Another user's are another user's to sweep.
        if os.fstat(handle).st_uid != os.geteuid() or _lock(handle) is not True:
            return False
        shutil.rmtree(path, ignore_errors=True)
        return True
    finally:
        os.close(handle)


def _lock(handle: int) -> bool | None:
    """Whether it is ours now; None: this file system has no locks, so nobody sweeps there."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True
