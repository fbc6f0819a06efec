"""Folders of a local store: opened step by step from the root, so that no symlink is followed."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Self

from dfq.errors import DfqError, DiskFull, QueueUnavailable, StoreRefused, StoreUnsure

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: A folder may be pruned by a delete just when it is made for a write; more often is a bug.
_TRIES = 100


@contextmanager
def opened(path: str, names: Sequence[str], *, make: bool = False) -> Iterator[int]:
    """A handle on the folder ``path``/``names``, made durably if asked for.

    Raises FileNotFoundError if it isn't there.
    """
    for attempt in range(_TRIES):
        try:
            handle = _walk(path, names, make=make)
            break
        except FileNotFoundError:
            if not make or attempt == _TRIES - 1:
                raise
    try:
        yield handle
    finally:
        os.close(handle)


class LastFolder:
    """The folder that was last asked for, kept open: a listing reads many files of each."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._names: Sequence[str] | None = None
        self._handle = -1

    def opened(self, names: Sequence[str]) -> int:
        """A handle on a folder, valid until the next is asked for."""
        if self._names != names:
            self._close()
            self._handle, self._names = _walk(self._path, names, make=False), names
        return self._handle

    def _close(self) -> None:
        if self._names is not None:
            self._names = None
            os.close(self._handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._close()


def _walk(path: str, names: Sequence[str], *, make: bool) -> int:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in names:
            inner = _enter(handle, name, make=make)
            os.close(handle)
            handle = inner
    except BaseException:
        os.close(handle)
        raise
    return handle


def _enter(handle: int, name: str, *, make: bool) -> int:
    try:
        return os.open(name, _FOLDER, dir_fd=handle)
    except FileNotFoundError:
        if not make:
            raise
    with suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=handle)
    # Also if somebody else made it: their sync may come after our return.
    os.fsync(handle)
    return os.open(name, _FOLDER, dir_fd=handle)


def sync(handle: int, key: str) -> None:
    """Make what was just done in a folder last."""
    try:
        os.fsync(handle)
    except OSError as error:
        raise StoreUnsure(
            f"{key} was changed, but the disk may not keep it: {error.strerror}; check the disk, "
            "and read the key again"
        ) from None


def is_folder(handle: int, name: str) -> bool:
    """Whether a name within a folder is a folder, not a link to one."""
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=handle, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def prune(path: str, names: Sequence[str]) -> None:
    """Remove the folder and those above it that are empty: a key that is gone leaves nothing."""
    for depth in range(len(names), 0, -1):
        try:
            with opened(path, names[: depth - 1]) as handle:
                os.rmdir(names[depth - 1], dir_fd=handle)
        except OSError:
            # Not empty, or gone already: either way there is nothing to do above it.
            return


def strangers(path: str, names: Sequence[str], left_out: str) -> list[str]:
    """What is neither a folder nor a regular file with a name that is text, at any depth."""
    found: list[str] = []
    with suppress(FileNotFoundError), opened(path, names) as handle:
        for entry in sorted(os.scandir(handle), key=lambda entry: entry.name):
            if not names and entry.name == left_out:
                continue
            name = "/".join((*names, entry.name))
            if not entry.name.isprintable():
                found.append(os.fsencode(name).decode(errors="backslashreplace"))
            elif entry.is_dir(follow_symlinks=False):
                found += strangers(path, (*names, entry.name), left_out)
            elif not entry.is_file(follow_symlinks=False):
                found.append(name)
    return found


@contextmanager
def explained(doing: str) -> Iterator[None]:
    """Say what to do about a failed system call."""
    try:
        yield
    except OSError as error:
        if isinstance(error, DfqError):
            raise
        said = f"can't {doing}: {error.strerror or error}"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(f"{said}; free some space") from None
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise StoreRefused(
                f"{said}; a file or a symlink stands where a folder should be, remove it"
            ) from None
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise StoreRefused(f"{said}; check the owner and the permissions") from None
        raise QueueUnavailable(f"{said}; check the folder and its disk") from None
