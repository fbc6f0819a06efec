"""Putting a unit in place, and taking it away again."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

from dfq.service.systemd import (
    PREFIX,
    NoSuchService,
    ServiceTaken,
    Systemd,
    own_queue,
    stop_seconds,
)
from dfq.service.unit import Unit
from dfq.worker.hearing import START_SECONDS

_ODD = re.compile(r"[^A-Za-z0-9_.-]+")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,199}", re.ASCII)


def name_for(queue: str) -> str:
    """The name of a queue's service: by the last part of its path."""
    last = queue.split("?")[0].rstrip("/").rpartition("/")[2]
    return check_name(_ODD.sub("-", last).strip("-.") or "worker")


def check_name(name: str) -> str:
    """The unit's name, with the prefix of all of them."""
    plain = name.removesuffix(".service").removeprefix(PREFIX)
    if not _NAME.fullmatch(plain):
        raise ServiceTaken(f"{name!r} is no name for a service; use letters, digits, '.', '_', '-'")
    return f"{PREFIX}{plain}"


def put(systemd: Systemd, unit: Unit, *, now: bool) -> bool:
    """Write the unit, enable it, and start it if ``now``; whether it replaced an older one."""
    target = systemd.file(unit.name)
    replaces = os.path.lexists(target)
    if replaces:
        queue = own_queue(target)
        if queue is None:
            raise ServiceTaken(f"{target} is not of dfq's making; choose another name with --unit")
        if queue != unit.queue:
            raise ServiceTaken(
                f"{unit.name} works on {queue} already; choose another name with --unit, "
                f"or remove it with `dfq service remove --unit {unit.name}`"
            )
    # It ends by the old unit, and starts by the new.
    wait = START_SECONDS + (stop_seconds(target) if replaces else 0.0)
    content = unit.render()
    systemd.require()
    _write(target, content)
    systemd.control("daemon-reload")
    systemd.control("enable", unit.file_name)
    if now:
        systemd.forget_failures(unit.name)
        # Not just started: one that runs has to take the new settings.
        systemd.control("restart", unit.file_name, wait=wait)
    return replaces


def remove(systemd: Systemd, name: str) -> None:
    """Stop the service and delete its unit; the queue and credentials stay."""
    target = systemd.file(name)
    if not os.path.lexists(target):
        raise NoSuchService(f"there is no service {name}; `dfq service status` lists those")
    if own_queue(target) is None:
        raise ServiceTaken(f"{target} is not of dfq's making, so it is left alone")
    systemd.require()
    systemd.control("disable", "--now", target.name, wait=stop_seconds(target))
    target.unlink()
    systemd.control("daemon-reload")


def _write(target: Path, content: str) -> None:
    """Whole or not at all: systemd may read it at any moment."""
    target.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink()
        raise
