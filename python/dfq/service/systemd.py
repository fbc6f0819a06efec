"""systemd as dfq uses it: where units are, and systemctl and journalctl."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dfq.errors import DfqError
from dfq.service.quoting import unword
from dfq.service.unit import OWN_SECTION, Scope

PREFIX, SUFFIX = "dfq-", ".service"
#: What systemctl gets to answer, where it does not wait for a service.
_SECONDS = 60.0
#: What `systemctl show` is asked for.
PROPERTIES = (
    *("LoadState", "ActiveState", "SubState", "UnitFileState", "MainPID", "NRestarts", "Result"),
    *("StatusText", "ExecMainStatus", "MemoryCurrent", "ActiveEnterTimestamp"),
)


class NoSystemd(DfqError, RuntimeError):
    """No systemd answers here, so nothing can be installed; the message says what to do instead."""

    exit_code = 69


class ServiceFailed(DfqError, RuntimeError):
    """systemd refused; the message is what it said."""

    exit_code = 74


class NoSuchService(DfqError, LookupError):
    """There is no such service of dfq; `dfq service status` lists those there are."""

    exit_code = 66


class ServiceTaken(DfqError, ValueError):
    """A unit of this name is something else; choose another with --unit."""

    exit_code = 73


@dataclass(frozen=True)
class Systemd:
    """The manager of a user's services, or of the system's."""

    scope: Scope

    @property
    def folder(self) -> Path:
        """Where its units are."""
        first = os.environ.get("SYSTEMD_UNIT_PATH", "").split(":")[0]
        if first:
            return Path(first)
        if self.scope == "system":
            return Path("/etc/systemd/system")
        config = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
        return Path(config) / "systemd" / "user"

    def file(self, name: str) -> Path:
        """The file of a unit."""
        return self.folder / f"{name}{SUFFIX}"

    def names(self) -> list[str]:
        """The services that dfq installed."""
        if not self.folder.is_dir():
            return []
        files = sorted(self.folder.glob(f"{PREFIX}*{SUFFIX}"))
        return [file.name.removesuffix(SUFFIX) for file in files if own_queue(file) is not None]

    def require(self) -> None:
        """Raise unless the manager answers; nothing is changed."""
        if shutil.which("systemctl") is None:
            raise NoSystemd(f"systemctl is not installed. {self._instead()}")
        answer = self._systemctl("show-environment")
        if answer.returncode != 0:
            said = answer.stderr.strip().splitlines()
            raise NoSystemd(f"systemd does not answer: {' '.join(said[:1])} {self._instead()}")

    def control(self, *words: str, wait: float = 0.0) -> str:
        """Run systemctl; raise if it says no. ``wait``: so long may a service take by its unit."""
        answer = self._systemctl(*words, wait=wait)
        if answer.returncode != 0:
            said = " ".join(answer.stderr.split()) or f"exit code {answer.returncode}"
            raise ServiceFailed(f"`systemctl {' '.join((*self._flag(), *words))}`: {said}")
        return answer.stdout

    def forget_failures(self, name: str) -> None:
        """Let a unit be started that was started too often, by a limit of somebody's own."""
        self._systemctl("reset-failed", name + SUFFIX)

    def properties(self, name: str) -> dict[str, str]:
        """What it says of a unit."""
        shown = self.control("show", name + SUFFIX, f"--property={','.join(PROPERTIES)}")
        pairs = (line.partition("=") for line in shown.splitlines() if "=" in line)
        return {key: value for key, _, value in pairs}

    def journal(self, name: str, words: Sequence[str]) -> int:
        """Show the log of a unit, on our own stdout; the exit code of journalctl."""
        if shutil.which("journalctl") is None:
            raise NoSystemd("journalctl is not installed, so there is no journal to read")
        unit = "--user-unit" if self.scope == "user" else "--unit"
        command = ["journalctl", f"{unit}={name}{SUFFIX}", "--no-pager", *words]
        return subprocess.run(command, check=False).returncode

    def _systemctl(self, *words: str, wait: float = 0.0) -> subprocess.CompletedProcess[str]:
        command = ["systemctl", *self._flag(), "--no-pager", *words]
        try:
            return subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_SECONDS + wait,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise ServiceFailed(f"`{' '.join(command)}` does not come back") from None

    def _flag(self) -> tuple[str, ...]:
        return ("--user",) if self.scope == "user" else ()

    def _instead(self) -> str:
        if self.scope == "user":
            user = "Log in as the user it is for (su and sudo don't), or use --system as root. "
        else:
            user = ""
        return (
            f"{user}Where there is no systemd, let what starts programs there run `dfq worker` "
            "(cron with @reboot, runit, a container); --print shows the unit all the same"
        )


def own_queue(file: Path) -> str | None:
    """The queue of a unit that dfq made; None if dfq did not."""
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    if OWN_SECTION not in lines:
        return None
    below = lines[lines.index(OWN_SECTION) :]
    return next((unword(line[6:]) for line in below if line.startswith("Queue=")), None)


def stop_seconds(file: Path) -> float:
    """How long a unit that dfq made may take to end: asked to, and then killed."""
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    found = (line.partition("=")[2] for line in lines if line.startswith("TimeoutStopSec="))
    text = next(found, "")
    return 2.0 * int(text) if text.isdigit() else 0.0
