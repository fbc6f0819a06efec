"""A store in a local directory: one file per key.

The order of calls that makes a write safe: the body goes into a file aside, which is synced; a
create links it to its name, which fails if the name is taken; every other write holds the key's
lock while it compares the version and renames the file over the old one, or unlinks it. Then the
folder is synced. So a name always holds a whole body, and a create needs no lock.

Versions are named by the MD5 of the body; those of larger files by inode, time and size, so that no
listing reads them. The clock that counts is the file system's.
"""

from __future__ import annotations

import hashlib
import os
import stat

# Within a store `list` is a verb.
from builtins import list as List
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import groupby
from typing import IO, Literal, NamedTuple

from dfq.ambient import SYSTEM_CHANCE, SYSTEM_CLOCK, Chance, Clock
from dfq.errors import StoreRefused
from dfq.store import (
    MAX_BODY_BYTES,
    MAX_PAGE,
    BodyTooLarge,
    Changed,
    Exists,
    InvalidKey,
    Missing,
    Object,
    Page,
    RequestCounter,
    Stored,
    check_body,
    check_key,
    check_limit,
    check_prefix,
)
from dfq.stores.aside import ASIDE, Aside
from dfq.stores.disk_clock import DiskClock
from dfq.stores.files import copy, new_file, open_file
from dfq.stores.folders import LastFolder, explained, is_folder, opened, prune, strangers, sync

#: Versions of files up to here are named by what is in them.
NAMED_BY_CONTENT_BYTES = 256 * 1024
#: A folder may be pruned between its making and its use.
_TRIES = 100


class _Written(NamedTuple):
    """A file aside: its folder, its name there, and the version that it will be."""

    folder: int
    name: str
    etag: str


class LocalStore:
    """Bodies in the files of a directory. Several processes may use the same one."""

    conditional_delete = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        clock: Clock = SYSTEM_CLOCK,
        chance: Chance = SYSTEM_CHANCE,
        time_of: Literal["disk", "clock"] = "disk",
    ) -> None:
        """``time_of``: whose clock is the store's, and that of its files. For tests that own time
        it is the clock handed in; else only how that runs counts, not what it shows.
        """
        self._root = os.path.abspath(path)
        self.url = f"file://{self._root}"
        self.requests = RequestCounter()
        self._clock = clock
        self._chance = chance
        self._aside = Aside(self._root, clock, chance)
        self._time_of = time_of
        self._disk_clock = DiskClock(clock, self._aside.time_of_disk)
        with explained(f"make {self._root}"):
            os.makedirs(os.path.join(self._root, ASIDE), mode=0o700, exist_ok=True)

    def create(self, key: str, body: bytes) -> str:
        """Store a body under a new key."""
        check_body(key, body)
        with self._writing(key, body) as aside:
            return self._create(key, aside)

    def replace(self, key: str, body: bytes, etag: str) -> str:
        """Store a body in place of the version named."""
        check_body(key, body)
        with self._writing(key, body) as aside:
            return self._replace(key, aside, etag)

    def create_from(self, key: str, path: str) -> str:
        """Store a file's bytes under a new key."""
        with self._sending(key, path) as source, self._writing(key, source) as aside:
            return self._create(key, aside)

    def replace_from(self, key: str, path: str, etag: str) -> str:
        """Store a file's bytes in place of the version named."""
        with self._sending(key, path) as source, self._writing(key, source) as aside:
            return self._replace(key, aside, etag)

    def fetch(self, key: str, path: str) -> Stored | None:
        """Copy an object into a new file."""
        self._check(key)
        self.requests.add("get")
        with explained(f"copy {key} in {self._root} to {path}"):
            found = self._open(key)
            if found is None:
                return None
            with found, new_file(path) as target:
                status = os.fstat(found.fileno())
                size = copy(found, target, status.st_size)
                target.seek(0)
                etag = _version(target, status)
            return Stored(key, etag, status.st_mtime, size)

    def put(self, key: str, body: bytes) -> str:
        """Store a body whatever was there."""
        check_body(key, body)
        with self._writing(key, body) as aside, self._aside.locked(key):
            for attempt in range(_TRIES):
                try:
                    with opened(self._root, _folders(key), make=True) as folder:
                        os.rename(
                            aside.name, _name(key), src_dir_fd=aside.folder, dst_dir_fd=folder
                        )
                        sync(folder, key)
                    return aside.etag
                except IsADirectoryError:
                    self._refuse_folder(key)
                    raise
                except FileNotFoundError:
                    if attempt == _TRIES - 1:
                        raise
        raise AssertionError("unreachable")

    def read(self, key: str) -> Object | None:
        """The object, or None."""
        self._check(key)
        self.requests.add("get")
        with explained(f"read {key} in {self._root}"):
            return self._read(key)

    def list(self, prefix: str, after: str = "", limit: int = MAX_PAGE) -> Page:
        """The keys with this prefix after that key."""
        check_prefix(prefix), check_limit(limit)
        self.requests.add("list")
        entries: List[Stored] = []
        with explained(f"list {prefix} in {self._root}"), LastFolder(self._root) as last:
            for key in self._walk((), prefix, after):
                if len(entries) == limit:
                    return Page(tuple(entries), entries[-1].key)
                try:
                    there = self._stored(key, last)
                except PermissionError:
                    there = _unreadable(key, last)
                if there is not None:
                    entries.append(there)
        return Page(tuple(entries), None)

    def delete(self, key: str, etag: str | None = None) -> bool:
        """Delete a key, or only the version named."""
        self._check(key)
        self.requests.add("delete")
        with explained(f"delete {key} in {self._root}"), self._aside.locked(key):
            if etag is not None:
                there = self._stored(key)
                if there is None:
                    return False
                if there.etag != etag:
                    raise Changed(key)
            return self._unlink(key)

    def delete_many(self, keys: Iterable[str]) -> None:
        """Delete keys; each folder is synced once."""
        wanted = [self._check(key) for key in keys]
        by_folder = groupby(sorted(wanted, key=_folders), key=_folders)
        for folders, group in by_folder:
            self.requests.add("delete")
            self._delete_in(folders, list(group))

    def strangers(self, prefix: str) -> List[str]:
        """What stands where keys begin so, but is no key: links, sockets, names that are no text.

        None of it is ever read or followed.
        """
        with explained(f"look at {prefix} in {self._root}"):
            return strangers(self._root, prefix.rstrip("/").split("/") if prefix else [], ASIDE)

    def now(self) -> float:
        """The file system's clock, or the one handed in."""
        return self._clock.wall() if self._time_of == "clock" else self._disk_clock.now()

    def sweep(self) -> int:
        """Remove what writers left that died on their way; how many files."""
        with explained(f"sweep {self._root}"):
            return self._aside.sweep(self.now())

    def close(self) -> None:
        """Nothing is held between calls."""

    def _check(self, key: str) -> str:
        check_key(key)
        if key.split("/", 1)[0] == ASIDE:
            raise InvalidKey(f"the key {key[:80]!r} can't be stored; {ASIDE} is the store's own")
        return key

    @contextmanager
    def _sending(self, key: str, path: str) -> Iterator[IO[bytes]]:
        self._check(key)
        with explained(f"read {path}"):
            source = open_file(path)
        with source:
            yield source

    @contextmanager
    def _writing(self, key: str, content: bytes | IO[bytes]) -> Iterator[_Written]:
        """The content in a file aside, synced."""
        self._check(key)
        self.requests.add("put")
        with explained(f"write {key} in {self._root}"), self._aside.new_file() as new:
            folder, name, file = new
            if isinstance(content, bytes):
                size = file.write(content)
            else:
                size = copy(content, file, os.fstat(content.fileno()).st_size)
            file.flush()
            self._stamp(file, size)
            os.fsync(file.fileno())
            file.seek(0)
            yield _Written(folder, name, _version(file, os.fstat(file.fileno())))

    def _stamp(self, file: IO[bytes], size: int) -> None:
        """Set the time of a file, if need be.

        Chance sees to it that no two versions are alike that are named by their time.
        """
        time = int(self._clock.wall() * 1e9)
        if self._time_of == "disk":
            if size <= NAMED_BY_CONTENT_BYTES:
                return
            # A server stamps what has arrived.
            os.fsync(file.fileno())
            time = os.fstat(file.fileno()).st_mtime_ns
        if size > NAMED_BY_CONTENT_BYTES:
            time = time // 1000 * 1000 + self._chance.bits(16) % 1000
        os.utime(file.fileno(), ns=(time, time))

    def _create(self, key: str, aside: _Written) -> str:
        for attempt in range(_TRIES):
            try:
                with opened(self._root, _folders(key), make=True) as folder:
                    os.link(
                        aside.name,
                        _name(key),
                        src_dir_fd=aside.folder,
                        dst_dir_fd=folder,
                        follow_symlinks=False,
                    )
                    sync(folder, key)
                return aside.etag
            except FileExistsError:
                self._refuse_folder(key)
                raise Exists(key) from None
            except FileNotFoundError:
                if attempt == _TRIES - 1:
                    raise
        raise AssertionError("unreachable")

    def _replace(self, key: str, aside: _Written, etag: str) -> str:
        with self._aside.locked(key):
            there = self._stored(key)
            if there is None:
                raise Missing(key)
            if there.etag != etag:
                raise Changed(key)
            with opened(self._root, _folders(key)) as folder:
                os.rename(aside.name, _name(key), src_dir_fd=aside.folder, dst_dir_fd=folder)
                sync(folder, key)
        return aside.etag

    def _open(self, key: str, last: LastFolder | None = None) -> IO[bytes] | None:
        """The file of a key; a folder or a pipe is none."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            if last is not None:
                handle = os.open(_name(key), flags, dir_fd=last.opened(_folders(key)))
            else:
                with opened(self._root, _folders(key)) as folder:
                    handle = os.open(_name(key), flags, dir_fd=folder)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            return None
        return os.fdopen(handle, "rb")

    def _read(self, key: str) -> Object | None:
        file = self._open(key)
        if file is None:
            return None
        with file:
            status = os.fstat(file.fileno())
            body = file.read(MAX_BODY_BYTES + 1)
        if len(body) > MAX_BODY_BYTES:
            raise BodyTooLarge(f"{self._root}/{key} has more than {MAX_BODY_BYTES:,} bytes")
        return Object(body, _version(body, status), status.st_mtime)

    def _stored(self, key: str, last: LastFolder | None = None) -> Stored | None:
        file = self._open(key, last)
        if file is None:
            return None
        with file:
            status = os.fstat(file.fileno())
            etag = _version(file, status)
        return Stored(key, etag, status.st_mtime, status.st_size)

    def _delete_in(self, folders: List[str], keys: List[str]) -> None:
        with explained(f"delete {keys[0]} and others in {self._root}"):
            with (
                suppress(FileNotFoundError, NotADirectoryError),
                opened(self._root, folders) as folder,
            ):
                for key in keys:
                    with self._aside.locked(key), suppress(FileNotFoundError):
                        os.unlink(_name(key), dir_fd=folder)
                sync(folder, keys[0])
            prune(self._root, folders)

    def _unlink(self, key: str) -> bool:
        folders = _folders(key)
        try:
            with opened(self._root, folders) as folder:
                os.unlink(_name(key), dir_fd=folder)
                sync(folder, key)
        except (FileNotFoundError, NotADirectoryError):
            return False
        prune(self._root, folders)
        return True

    def _refuse_folder(self, key: str) -> None:
        with opened(self._root, _folders(key)) as folder:
            if is_folder(folder, _name(key)):
                raise StoreRefused(
                    f"can't write {key}: other keys begin with {key}/, and a folder can't also "
                    "be a file; choose another key"
                )

    def _walk(self, folders: tuple[str, ...], prefix: str, after: str) -> Iterator[str]:
        """The keys below a folder, in order; what can't be among those wanted is not read."""
        start = "".join(f"{name}/" for name in folders)
        for name in self._names(folders):
            key = start + name
            if not name.endswith("/"):
                if key > after and key.startswith(prefix):
                    yield key
            elif _may_hold(key, prefix, after):
                yield from self._walk((*folders, name[:-1]), prefix, after)

    def _names(self, folders: tuple[str, ...]) -> List[str]:
        """What a folder holds, in the order of the keys: folders end in a slash."""
        names = []
        with suppress(FileNotFoundError), opened(self._root, folders) as folder:
            for entry in os.scandir(folder):
                # A name that isn't text is no key, and neither are links, sockets and the like.
                if not entry.name.isprintable() or (not folders and entry.name == ASIDE):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    names.append(f"{entry.name}/")
                elif entry.is_file(follow_symlinks=False):
                    names.append(entry.name)
        return sorted(names)


def _may_hold(start: str, prefix: str, after: str) -> bool:
    """Whether keys that begin with ``start`` can have the prefix and sort after ``after``."""
    if not (start.startswith(prefix) or prefix.startswith(start)):
        return False
    return start > after or after.startswith(start)


def _unreadable(key: str, last: LastFolder) -> Stored | None:
    """Of a file that can't be read it can still be told that it is there; it has no version."""
    try:
        status = os.stat(_name(key), dir_fd=last.opened(_folders(key)), follow_symlinks=False)
    except FileNotFoundError:
        return None
    return Stored(key, "", status.st_mtime, status.st_size)


def _folders(key: str) -> List[str]:
    return key.split("/")[:-1]


def _name(key: str) -> str:
    return key.rsplit("/", 1)[-1]


def _version(content: IO[bytes] | bytes, status: os.stat_result) -> str:
    """The name of a version, from the file or what was read of it."""
    if status.st_size > NAMED_BY_CONTENT_BYTES:
        return f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}"
    return _etag(content if isinstance(content, bytes) else content.read(MAX_BODY_BYTES))


def _etag(body: bytes) -> str:
    return hashlib.md5(body, usedforsecurity=False).hexdigest()
