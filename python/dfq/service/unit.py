"""The unit file of a worker, and why each of its lines is there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from dfq.service.quoting import command_line, path, pattern, word
from dfq.worker.hearing import START_SECONDS
from dfq.worker.processes import HOPELESS

Scope = Literal["user", "system"]

#: The section in which dfq finds its own units again; systemd passes over it.
OWN_SECTION = "[X-Dfq]"
#: What a worker needs beyond --grace: to stop coroutines, and to write the last outcomes.
FAREWELL_SECONDS = 30.0
#: A disk that is not mounted or a store that does not answer may take hours to come back, so there
#: is no limit to starts, but time between them.
RESTART_SECONDS = 30


@dataclass(frozen=True)
class Unit:
    """A worker as a service."""

    name: str
    scope: Scope
    #: The queue's URL, or the absolute path of its folder.
    queue: str
    #: The folder of a file queue, absolute.
    folder: str | None
    #: What it runs, from the interpreter on.
    words: tuple[str, ...]
    working_directory: str
    environment_file: str
    environment: dict[str, str] = field(default_factory=dict)
    #: A system unit: as whom it runs.
    user: str | None = None
    grace_seconds: float = 30.0
    watchdog_seconds: float = 300.0
    #: A size as systemd writes it (256M, 50%), or infinity.
    memory: str = "50%"
    #: What it may write to besides the queue, where it is there.
    writable: tuple[str, ...] = ()
    #: The folder below /run that it needs; the machine forgets those when it is switched off.
    runtime: str | None = None
    #: The folder of the index that results go into, absolute.
    results: str | None = None

    @property
    def stop_seconds(self) -> float:
        """What it gets to end by itself."""
        return self.grace_seconds + FAREWELL_SECONDS

    @property
    def file_name(self) -> str:
        """The name of the unit."""
        return f"{self.name}.service"

    def render(self) -> str:
        """The unit file."""
        return "\n".join((*self._lines(), ""))

    def _lines(self) -> Iterator[str]:
        yield "# Made by `dfq service install`, which replaces it; your own changes belong into"
        yield f"# `systemctl {'--user ' if self.scope == 'user' else ''}edit {self.name}`."
        yield "[Unit]"
        yield f"Description=dfq worker for {path(_one_line(self.queue))}"
        if self.scope == "system":
            yield from self._order()
        # What starting again does not mend ends with an exit code that says so (below).
        yield "StartLimitIntervalSec=0"
        yield ""
        yield "[Service]"
        yield from self._running()
        yield from self._limits()
        yield from self._sandbox()
        yield ""
        yield "[Install]"
        yield f"WantedBy={'default' if self.scope == 'user' else 'multi-user'}.target"
        yield ""
        yield OWN_SECTION
        yield f"Queue={word(self.queue)}"

    def _order(self) -> Iterator[str]:
        for folder in self._own():
            yield f"RequiresMountsFor={word(folder)}"
        if self.folder is None:
            # A bucket needs the network, and refuses requests of a clock that is far off.
            yield "Wants=network-online.target"
            yield "After=network-online.target time-sync.target"

    def _running(self) -> Iterator[str]:
        yield "Type=notify"
        yield "NotifyAccess=main"
        if self.user is not None:
            yield f"User={self.user}"
        yield f"WorkingDirectory={path(self.working_directory)}"
        # Credentials stay out of this file, which anybody can read.
        yield f"EnvironmentFile=-{pattern(self.environment_file)}"
        for name, value in {**self.environment, "PYTHONUNBUFFERED": "1"}.items():
            yield f"Environment={word(f'{name}={value}')}"
        if self.runtime is not None:
            yield f"RuntimeDirectory={word(self.runtime)}"
            # Others may use it, too, and somebody may look while this one rests.
            yield "RuntimeDirectoryPreserve=yes"
        yield f"ExecStart={command_line(self.words)}"
        yield f"TimeoutStartSec={START_SECONDS:.0f}"
        # Only the worker hears of the end: the programs it runs have until --grace is over.
        yield "KillMode=mixed"
        yield f"TimeoutStopSec={self.stop_seconds:.0f}"
        # Whatever ends it: a worker that ends well, unasked, was ended by its handler.
        yield "Restart=always"
        yield f"RestartSec={RESTART_SECONDS}"
        yield f"RestartPreventExitStatus={' '.join(map(str, sorted(HOPELESS)))}"
        yield "SyslogLevelPrefix=yes"

    def _limits(self) -> Iterator[str]:
        yield f"WatchdogSec={self.watchdog_seconds:.0f}"
        # A worker that hangs prints where; a core dump would only wear the card.
        yield "LimitCORE=0"
        yield f"MemoryHigh={four_fifths(self.memory)}"
        yield f"MemoryMax={self.memory}"
        # A program that grows too large fails its own task; the worker goes on.
        yield "OOMPolicy=continue"

    def _sandbox(self) -> Iterator[str]:
        yield "UMask=0077"
        yield "NoNewPrivileges=yes"
        yield "LockPersonality=yes"
        yield "RestrictRealtime=yes"
        yield "RestrictSUIDSGID=yes"
        yield "SystemCallArchitectures=native"
        if self.scope == "user":
            # The rest needs namespaces, which a user may not have.
            return
        yield "ProtectSystem=strict"
        yield "ProtectHome=read-only"
        places = tuple(dict.fromkeys((*self._own(), *self.writable)))
        for place in places:
            # What is not there keeps the worker from starting, but for the dash; it says itself
            # what it misses, and in plainer words.
            yield f"ReadWritePaths={word(f'-{place}')}"
        if not any(map(_below_tmp, (*places, self.working_directory, *self.words))):
            yield "PrivateTmp=yes"
        yield "ProtectControlGroups=yes"
        yield "ProtectHostname=yes"
        yield "ProtectKernelLogs=yes"
        yield "ProtectKernelModules=yes"
        yield "ProtectKernelTunables=yes"

    def _own(self) -> tuple[str, ...]:
        """The folders without which it can do nothing."""
        return tuple(folder for folder in (self.folder, self.results) if folder is not None)


def four_fifths(memory: str) -> str:
    """From there on the kernel slows the worker down instead of ending it."""
    digits = memory.rstrip("KMGT%")
    if not digits.isdigit():
        return memory
    unit = memory[len(digits) :]
    smaller = {"": ("", 1), "%": ("%", 1)}.get(unit)
    if smaller is None:
        below = {"K": "", "M": "K", "G": "M", "T": "G"}[unit]
        smaller = (below, 1024)
    # At 0 it would get no memory at all.
    return f"{max(1, int(digits) * smaller[1] * 4 // 5)}{smaller[0]}"


def _one_line(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text).strip().rstrip("\\")


def _below_tmp(place: str) -> bool:
    return f"{place}/".startswith(("/tmp/", "/var/tmp/"))  # noqa: S108 - only looked for
