"""From the URL of an index to its store."""

from __future__ import annotations

import os
import threading

from dfq.ambient import Chance, Clock
from dfq.errors import NoIndex
from dfq.opening import split
from dfq.store import Store
from dfq.stores.memory import MemoryStore

_MEMORY: dict[str, MemoryStore] = {}
_LOCK = threading.Lock()


def open_store(
    url: str | os.PathLike[str], *, create: bool, clock: Clock, chance: Chance
) -> tuple[Store, str]:
    """The store of an index, and its URL. A folder that is not there is made only to create."""
    scheme, rest = split(url)
    if scheme == "s3":
        from dfq.stores.s3 import S3Store

        return S3Store(f"s3://{rest}", clock=clock, chance=chance), f"s3://{rest}"
    if scheme == "memory":
        with _LOCK:
            if rest not in _MEMORY:
                _MEMORY[rest] = MemoryStore(rest, clock=clock)
            return _MEMORY[rest], f"memory://{rest}"
    from dfq.stores.local import LocalStore

    path = os.path.abspath(rest)  # noqa: PTH100 - pathlib is slow to import
    if not create and not os.path.isdir(path):  # noqa: PTH112
        raise NoIndex(
            f"there is no index at {path}; check the name, or make one with `dfq index create`"
        )
    return LocalStore(path, clock=clock, chance=chance), f"file://{path}"
