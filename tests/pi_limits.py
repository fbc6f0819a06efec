"""Run a program with no more memory than a small Raspberry Pi has.

    python -m tests.pi_limits [--memory-mb 1024] -- COMMAND...

In a memory cgroup where one can be made (all processes together get so much, as on a Pi), otherwise
under a limit of the address space of each. Which of the two it was, and the most that was used, is
said on stderr; the exit code is the program's.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
#: Threads that each have an arena of their own take address space, and memory where they are many.
ENVIRONMENT = {"MALLOC_ARENA_MAX": "2"}


@dataclass(frozen=True)
class Group:
    """A memory cgroup of our own, of the first kind or the second."""

    path: Path
    limit_name: str
    peak_name: str

    @classmethod
    def make(cls, memory_bytes: int) -> Group | None:
        """A new group with this limit, or None where none can be made."""
        name = f"dfq-pi-{os.getpid()}"
        for parent, limit_name, peak_name in (
            (CGROUPS / "memory", "memory.limit_in_bytes", "memory.max_usage_in_bytes"),
            (CGROUPS, "memory.max", "memory.peak"),
        ):
            group = cls(parent / name, limit_name, peak_name)
            try:
                group.path.mkdir()
            except OSError:
                continue
            try:
                (group.path / limit_name).write_text(str(memory_bytes))
            except OSError:
                group.path.rmdir()
                continue
            return group
        return None

    def enter(self) -> None:
        """Put this process into it."""
        (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def peak_bytes(self) -> int | None:
        """The most that was used in it."""
        try:
            return int((self.path / self.peak_name).read_text())
        except (OSError, ValueError):
            return None

    def remove(self) -> None:
        """Take it away, once nothing runs in it."""
        self.path.rmdir()


def run(command: list[str], memory_bytes: int) -> int:
    """Run it under the limit; its exit code."""
    group = Group.make(memory_bytes)

    def limit() -> None:
        if group is not None:
            group.enter()
        else:
            resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))

    try:
        code = subprocess.run(
            command, env={**os.environ, **ENVIRONMENT}, preexec_fn=limit, check=False
        ).returncode
        peak = None if group is None else group.peak_bytes()
    finally:
        if group is not None:
            group.remove()
    how = "address space" if group is None else "cgroup"
    used = "" if peak is None else f", {peak >> 20} MB used at most"
    print(f"pi_limits: {memory_bytes >> 20} MB by {how}{used}", file=sys.stderr)
    return code if code >= 0 else 128 - code


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="pi_limits")
    parser.add_argument("--memory-mb", type=int, default=1_024)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        parser.error("give a command after --")
    return run(command, options.memory_mb << 20)


if __name__ == "__main__":
    sys.exit(main())
