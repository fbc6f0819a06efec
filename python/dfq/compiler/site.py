"""What every part of the compiler is handed: the store, time, chance and room for files."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Final, TypeVar

from dfq.ambient import Chance, Clock
from dfq.compiler.descriptor import Descriptor, read_descriptor
from dfq.compiler.paths import DESCRIPTOR
from dfq.compiler.records import iso
from dfq.compiler.scratch import scratch_folder, sweep_scratch
from dfq.engines.s3.writes import Writes
from dfq.errors import DfqError, NoIndex
from dfq.store import Store

T = TypeVar("T")
U = TypeVar("U")

#: Requests under way at once, where a request is mostly waiting.
_PARALLEL_REQUESTS: Final = 8


class SchemaGrew(Exception):
    """The columns are not what they were when the pass began."""


class Site:
    """One index's place in a store."""

    def __init__(
        self,
        store: Store,
        *,
        url: str,
        clock: Clock,
        chance: Chance,
        worker_id: str,
        scratch: str | None,
    ) -> None:
        self.store = store
        self.url = url
        #: Ours: its running counts, never what it shows.
        self.clock = clock
        self.chance = chance
        self.worker_id = worker_id
        self.writes = Writes(store, chance)
        self._scratch = scratch
        self._descriptor: Descriptor | None = None
        self._certified = False
        self._swept = False
        self._lock = threading.Lock()
        self._last_stamp = 0.0
        self._is_remote = store.url.startswith("s3:")

    def wall(self) -> float:
        """The store's clock: the one that counts."""
        return self.store.now()

    def boot(self) -> float:
        """Seconds since boot, by this machine."""
        return self.clock.boot()

    def stamp(self) -> str:
        """The time by the store's clock; later than any that was given before."""
        with self._lock:
            self._last_stamp = max(self.store.now(), self._last_stamp + 1e-6)
            return iso(self._last_stamp)

    @property
    def descriptor(self) -> Descriptor:
        """The columns as they were last read."""
        return self._descriptor or self.refresh()

    def refresh(self) -> Descriptor:
        """Read the columns again: they may have grown."""
        found = self.store.read(DESCRIPTOR)
        if found is None:
            raise NoIndex(
                f"there is no index at {self.url}; check the name, or make one with "
                "`dfq index create`"
            )
        self._descriptor = read_descriptor(found.body, f"{self.url}/{DESCRIPTOR}")
        return self._descriptor

    def ensure_current(self, descriptor: Descriptor) -> None:
        """Raise SchemaGrew if there are other columns: who knows fewer must not judge."""
        if self.refresh().columns != descriptor.columns:
            raise SchemaGrew

    def ensure_safe(self) -> None:
        """Before the first write: see that the store keeps its promises."""
        if self._certified:
            return
        if self._is_remote:
            from dfq.stores.certify import ensure_certified

            ensure_certified(self.store, chance=self.chance, clock=self.clock)
        self._certified = True

    @contextmanager
    def scratch(self) -> Iterator[str]:
        """A folder for the time of the block."""
        with self._lock:
            first, self._swept = not self._swept, True
        if first:
            sweep_scratch(self._scratch)
        with scratch_folder(self._scratch) as path:
            yield path

    def sweep(self) -> None:
        """Remove what killed processes left on this machine, and in a store that is a folder."""
        self._swept = True
        sweep_scratch(self._scratch)
        sweep = getattr(self.store, "sweep", None)
        if sweep is not None:
            with suppress(DfqError):
                sweep()

    def map(self, function: Callable[[T], U], items: Iterable[T]) -> Iterator[U]:
        """Call for each, several at once where a request is mostly waiting."""
        wanted = list(items)
        if not self._is_remote or len(wanted) <= 1:
            yield from map(function, wanted)
            return
        with ThreadPoolExecutor(_PARALLEL_REQUESTS, "dfq-index") as pool:
            yield from pool.map(function, wanted)


def new_path(folder: str, name: str, chance: Chance) -> str:
    """A path in a folder that nothing has yet."""
    return os.path.join(folder, f"{name}-{chance.bits(64):016x}")  # noqa: PTH118
