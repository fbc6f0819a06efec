"""The two places of a queue.json: a file in the queue's folder, an object in its store."""

from __future__ import annotations

import os
from pathlib import Path

from dfq.ambient import Chance
from dfq.cli.policy_file import FILE_NAME, QueueExists
from dfq.errors import QueueUnavailable
from dfq.policy import Policy
from dfq.store import Store


class InFolder:
    """queue.json as a file."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE_NAME
        self._found = False

    @property
    def name(self) -> str:
        """The path."""
        return str(self._path)

    def read(self) -> bytes | None:
        """What is in the file, or None."""
        try:
            body = self._path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise QueueUnavailable(f"{self._path} can't be read: {error.strerror}") from None
        self._found = True
        return body

    def check(self, policy: Policy) -> None:
        """A folder can keep to any."""

    def write(self, content: bytes) -> None:
        """Synced before it gets its name: a power cut leaves the file as it was, or whole."""
        path = self._path
        # In tmp/ the sweeper finds what a crash leaves behind.
        temporary = path.parent / "tmp" / f"{FILE_NAME}.{os.getpid()}"
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            temporary.parent.mkdir(mode=0o700, exist_ok=True)
            temporary.unlink(missing_ok=True)
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                if self._found:
                    temporary.replace(path)
                else:
                    # Unlike a rename, a link fails if somebody else was faster.
                    path.hardlink_to(temporary)
            finally:
                temporary.unlink(missing_ok=True)
            _sync_folder(path.parent)
        except FileExistsError:
            raise QueueExists(f"{path} was made by somebody else just now; look at it") from None
        except OSError as error:
            raise QueueUnavailable(f"{path} can't be written: {error.strerror}") from None


class InStore:
    """queue.json as an object."""

    def __init__(self, store: Store, chance: Chance) -> None:
        self._store = store
        self._chance = chance
        self._etag: str | None = None

    @property
    def name(self) -> str:
        """The URL."""
        return f"{self._store.url}/{FILE_NAME}"

    def read(self) -> bytes | None:
        """What is in the object, or None."""
        found = self._store.read(FILE_NAME)
        if found is None:
            return None
        self._etag = found.etag
        return found.body

    def check(self, policy: Policy) -> None:
        """What a store can't hold is refused."""
        from dfq.engines.s3.policies import checked_policy

        checked_policy(policy, self.name)

    def write(self, content: bytes) -> None:
        """One conditional write: of two who change it at once one is told."""
        from dfq.engines.s3.writes import Writes

        writes = Writes(self._store, self._chance)
        if self._etag is None:
            written = writes.create(FILE_NAME, content)
        else:
            written = writes.replace(FILE_NAME, content, self._etag)
        if not written.won:
            raise QueueExists(f"{self.name} was written by somebody else just now; look at it")


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
