"""What a local store has beside its keys: files on their way, the locks of keys, a clock.

A file aside is locked while its writer lives; the kernel drops the lock when it dies. Who sweeps
takes the lock first, so a writer that lost this race, between making the file and locking it, finds
its file gone and makes another. Locks do not always reach other machines: what those may have left
must also be old.
"""

from __future__ import annotations

import fcntl
import os
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import IO, Final

from dfq.ambient import Chance, Clock
from dfq.errors import StoreBusy
from dfq.stores.folders import opened

#: The folder; no key begins so.
ASIDE: Final = ".dfq-store"
#: Files of other machines are left alone until they are so old.
FOREIGN_SECONDS: Final = 3600.0
_CLOCK = "clock"
_LOCKS = 64
_LOCK_SECONDS = 10.0
_LOCK_POLL_SECONDS = 0.002
#: A sweeper may come between the making of a file and its lock; more often is a bug.
_TRIES = 100
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_KEPT = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Aside:
    """The store's own folder."""

    def __init__(self, root: str, clock: Clock, chance: Chance) -> None:
        self._root = root
        self._clock = clock
        self._chance = chance
        # Nothing ever sets it: a wait that lasts its timeout.
        self._never = threading.Event()

    @contextmanager
    def new_file(self) -> Iterator[tuple[int, str, IO[bytes]]]:
        """A locked new file: its folder, its name and itself. Gone after the block if not moved."""
        with opened(self._root, [ASIDE]) as folder:
            name, handle = self._new(folder)
            try:
                with os.fdopen(handle, "w+b") as file:
                    yield folder, name, file
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=folder)

    def _new(self, folder: int) -> tuple[str, int]:
        for _ in range(_TRIES):
            name = f"{_boot()}-{os.getpid()}-{self._chance.bits(64):016x}"
            handle = os.open(name, _NEW, 0o600, dir_fd=folder)
            locked = True
            # Where there are no locks, nobody sweeps either.
            with suppress(OSError):
                locked = _is_locked(handle)
            if locked and os.fstat(handle).st_nlink:
                return name, handle
            os.close(handle)
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)
        raise StoreBusy(f"new files in {self._root}/{ASIDE} are taken away; look for who does it")

    def sweep(self, now: float) -> int:
        """Remove the files of those who died; how many."""
        ours = f"{_boot()}-"
        swept = 0
        with opened(self._root, [ASIDE]) as folder:
            for entry in os.scandir(folder):
                if entry.name.startswith("lock-") or entry.name == _CLOCK:
                    continue
                with suppress(OSError):
                    old = entry.stat(follow_symlinks=False).st_mtime < now - FOREIGN_SECONDS
                    if old or (entry.name.startswith(ours) and _boot()):
                        swept += _swept(folder, entry.name)
        return swept

    @contextmanager
    def locked(self, key: str) -> Iterator[None]:
        """Hold the key's lock. The kernel drops it when its holder dies."""
        name = f"lock-{zlib.crc32(key.encode()) % _LOCKS:02d}"
        with opened(self._root, [ASIDE]) as folder:
            handle = os.open(name, _KEPT, 0o600, dir_fd=folder)
        try:
            deadline = self._clock.boot() + _LOCK_SECONDS
            # A clock that stands still must not wait for ever: the polls are counted as well.
            for _ in range(int(_LOCK_SECONDS / _LOCK_POLL_SECONDS)):
                if _is_locked(handle):
                    break
                if self._clock.boot() >= deadline:
                    raise self._stuck(key, name)
                self._never.wait(self._chance.uniform(0, 2 * _LOCK_POLL_SECONDS))
            else:
                raise self._stuck(key, name)
            yield
        finally:
            os.close(handle)

    def _stuck(self, key: str, name: str) -> StoreBusy:
        return StoreBusy(
            f"{self._root}/{ASIDE}/{name} is locked by another process, so {key} was not "
            "written; look for a stopped process, or try again"
        )

    def time_of_disk(self) -> float:
        """When the file system says a file was written that is written now."""
        with opened(self._root, [ASIDE]) as folder:
            handle = os.open(_CLOCK, _KEPT, 0o600, dir_fd=folder)
        try:
            os.pwrite(handle, b"\n", 0)
            # A server stamps what has arrived.
            os.fsync(handle)
            return os.fstat(handle).st_mtime
        finally:
            os.close(handle)


def _is_locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _swept(folder: int, name: str) -> bool:
    handle = os.open(name, _OLD, dir_fd=folder)
    try:
        if not _is_locked(handle):
            return False
        os.unlink(name, dir_fd=folder)
        return True
    finally:
        os.close(handle)


@cache
def _boot() -> str:
    """Which run of which machine this is; empty where the system does not say it."""
    with suppress(OSError), open("/proc/sys/kernel/random/boot_id") as file:  # noqa: PTH123
        return file.read(8)
    return ""
