"""The liveness file: says when a worker last looked for work, for whoever watches it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from dfq.ambient import SYSTEM_CLOCK, Clock
from dfq.worker.logs import LOGGER

#: It is written at most this often, however often the worker polls.
LEAST_SECONDS = 1.0

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Health:
    """The verdict on a worker: alive or not, and why."""

    alive: bool
    message: str
    workers: tuple[dict[str, Any], ...] = ()


class HealthFile:
    """Writes the liveness file, whole or not at all."""

    def __init__(self, path: str, clock: Clock, describe: Callable[[], dict[str, Any]]) -> None:
        self._path = Path(path)
        self._clock = clock
        self._describe = describe
        self._lock = threading.Lock()
        self._written_at: float | None = None
        self._polled: tuple[float, float] | None = None
        self._failing = False

    def poll(self) -> None:
        """The worker has just looked for work."""
        self._polled = (self._clock.wall(), self._clock.boot())
        self.beat()

    def beat(self) -> None:
        """The worker is alive, though it may be too busy to look for work."""
        now = self._clock.boot()
        with self._lock:
            if self._written_at is not None and 0 <= now - self._written_at < LEAST_SECONDS:
                return
            self._written_at = now
            self._write(now)

    def remove(self) -> None:
        """The worker has ended as it should."""
        with self._lock:
            self._path.unlink(missing_ok=True)

    def _write(self, now: float) -> None:
        polled_wall, polled_boot = self._polled or (None, None)
        content = {
            **self._describe(),
            "last_poll_at": polled_wall,
            "last_poll_boot": polled_boot,
            "alive_at": self._clock.wall(),
            "alive_boot": now,
            "boot_id": _boot_id(),
        }
        temporary = self._path.with_name(f".{self._path.name}.new")
        try:
            temporary.write_bytes(orjson.dumps(content))
            temporary.replace(self._path)
        except OSError as error:
            if not self._failing:
                LOGGER.error("the liveness file can't be written: %s", error)
            self._failing = True
        else:
            self._failing = False


def check(path: str, max_age_seconds: float, clock: Clock = SYSTEM_CLOCK) -> Health:
    """Whether the worker that writes ``path`` was alive within the last so many seconds.

    With several processes there is one file each, ``path`` with a number behind it; then all
    of them have to be alive.
    """
    target = Path(path)
    files = [target] if target.exists() else numbered(path)
    if not files:
        return Health(False, f"{path} is not there: no worker writes it, or it has ended")
    workers: list[dict[str, Any]] = []
    for file in files:
        problem, worker = _check_one(file, max_age_seconds, clock)
        if problem is not None:
            return Health(False, problem)
        workers.append(worker)
    return Health(True, f"alive: {len(workers)} worker process(es)", tuple(workers))


def numbered(path: str) -> list[Path]:
    """The files of the processes of one worker."""
    target = Path(path)
    if not target.parent.is_dir():
        return []
    return sorted(
        file
        for file in target.parent.iterdir()
        if file.name.startswith(target.name + ".") and file.name[len(target.name) + 1 :].isdigit()
    )


def _check_one(
    file: Path, max_age_seconds: float, clock: Clock
) -> tuple[str | None, dict[str, Any]]:
    try:
        content = orjson.loads(file.read_bytes())
        alive_boot = float(content["alive_boot"])
    except (OSError, ValueError, TypeError, KeyError) as error:
        return f"{file} can't be read as a liveness file: {error}", {}
    if content.get("boot_id") != _boot_id():
        return f"{file} was written before the machine was started; the worker is gone", {}
    age = clock.boot() - alive_boot
    if not 0 <= age <= max_age_seconds:
        return f"the worker of {file} last gave a sign {age:.0f} s ago", {}
    return None, {**content, "age_seconds": age}


def _boot_id() -> str | None:
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return None
