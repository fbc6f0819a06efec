# pathlib would slow down what is measured.
# ruff: noqa: PTH102, PTH103, PTH104, PTH106, PTH108, PTH118, PTH123
"""The first design of dfq in plain Python: what the file engine is measured against.

A task is a directory ``pending/<id>/`` with a task.json. A worker lists ``pending/``,
shuffles, and takes a task by creating its lease.json with O_EXCL. Done means: the payload
moves to ``completed/<id>.json`` and the directory goes. No shards, no fence, nothing synced.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class SeedLease:
    """A task held by this process."""

    task_id: str
    payload: dict[str, Any]


class SeedQueue:
    """``rescan=False`` lists once and works through the list: the design at its best.

    ``rescan=True`` lists again before every claim, as the program it comes from does.
    """

    def __init__(self, root: str | os.PathLike[str], *, rescan: bool = False) -> None:
        self.pending = os.path.join(root, "pending")
        self.completed = os.path.join(root, "completed")
        self.rescan = rescan
        self._candidates: list[str] = []
        os.makedirs(self.pending, exist_ok=True)
        os.makedirs(self.completed, exist_ok=True)

    def push(self, task_id: str, payload: dict[str, Any]) -> None:
        """Store a task; a reader may see it half written, as in the original."""
        directory = f"{self.pending}/{task_id}"
        os.mkdir(directory)
        with open(f"{directory}/task.json", "w", encoding="utf-8") as file:
            json.dump(payload, file)

    def claim(self, worker_id: str) -> SeedLease | None:
        """Take any task, or None when a fresh list has none left."""
        if self.rescan:
            self._candidates.clear()
        for task_id in self._unclaimed():
            if not self._lease(task_id, worker_id):
                continue
            directory = f"{self.pending}/{task_id}"
            try:
                with open(f"{directory}/task.json", encoding="utf-8") as file:
                    return SeedLease(task_id, json.load(file))
            except FileNotFoundError:
                # Its ack was between removing the lease and the directory: nothing to do here.
                self._remove(directory)
        return None

    def ack(self, lease: SeedLease) -> None:
        """Move the payload to completed/ and remove the directory."""
        directory = f"{self.pending}/{lease.task_id}"
        os.rename(f"{directory}/task.json", f"{self.completed}/{lease.task_id}.json")
        self._remove(directory)

    @staticmethod
    def _remove(directory: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{directory}/lease.json")
        # Another process may have leased the empty directory; then it is the one to remove it.
        with contextlib.suppress(OSError):
            os.rmdir(directory)

    def _unclaimed(self) -> Iterator[str]:
        if not self._candidates:
            with os.scandir(self.pending) as entries:
                self._candidates = [entry.name for entry in entries]
            random.shuffle(self._candidates)
        while self._candidates:
            yield self._candidates.pop()

    def _lease(self, task_id: str, worker_id: str) -> bool:
        path = f"{self.pending}/{task_id}/lease.json"
        try:
            descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        except (FileExistsError, FileNotFoundError):
            return False
        now = time.time()
        lease = {
            "task_id": task_id,
            "worker_id": worker_id,
            "acquired_at": now,
            "heartbeat_at": now,
            "expires_at": now + 600,
        }
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(lease, file)
        return True
