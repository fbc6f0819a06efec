"""A systemd of our own, in namespaces of its own: as on a Pi that has just started.

It sees this machine's files, but for /run and /etc/systemd/system, and ends with the test.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.patience import patience

PROGRAM = Path("/lib/systemd/systemd")
LONG = patience(60.0)
_TARGETS = ("basic", "sysinit", "shutdown", "multi-user", "network-online", "time-sync")

_GROUP = """
mkdir -p "$1/cgroup" && mount -t cgroup2 none "$1/cgroup" && cd "$1/cgroup"
"""
_ENTER = f"""{_GROUP}
mkdir "$2"
echo $$ > "$2/cgroup.procs"
cd / && umount "$1/cgroup"
exec unshare --cgroup --mount --propagation private --pid --fork --kill-child \
    sh -ec "$3" sh "$1" "$4"
"""
_BOOT = """
mount -t proc proc /proc
# A manager of a machine sets limits of the whole kernel.
mount --bind -o ro /proc/sys /proc/sys
umount -l /sys/fs/cgroup
mount -t cgroup2 none /sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /etc/systemd/system
mount --bind "$1/units" /etc/systemd/system
[ ! -e /etc/machine-id ] || mount --bind "$1/machine-id" /etc/machine-id
exec env -i container=lxc "PATH=$PATH" "NOTIFY_SOCKET=$2" \
    "SYSTEMD_UNIT_PATH=/etc/systemd/system:$1/targets" \
    "$0" --system --log-target=console --show-status=no
"""
_TAKE_AWAY = f"""{_GROUP}
find "$2" -depth -type d -exec rmdir {{}} +
"""


class NotBooted(Exception):
    """It can't be had here; the message says what was missing."""


class Booted:
    """The manager, and what is asked of it."""

    def __init__(self, home: Path, pid: int) -> None:
        self.pid = pid
        #: What stands for /etc/systemd/system.
        self.units = home / "units"

    def run(self, *words: object, env: dict[str, str] | None = None) -> subprocess.CompletedProcess:
        """A command in its namespaces."""
        enter = ["nsenter", "-t", str(self.pid), "--mount", "--pid", "--cgroup"]
        return subprocess.run(
            [*enter, *map(str, words)],
            env=env,
            capture_output=True,
            text=True,
            timeout=LONG,
            check=False,
        )

    def shown(self, unit: str, name: str) -> str:
        """A property of a unit."""
        ran = self.run("systemctl", "show", unit, f"--property={name}", "--value")
        assert ran.returncode == 0, ran.stderr
        return ran.stdout.strip()


@contextmanager
def booted(home: Path) -> Iterator[Booted]:
    """Start it, and wait until it says that it is up."""
    if not PROGRAM.exists():
        raise NotBooted("systemd")
    (home / "targets").mkdir()
    (home / "units").mkdir()
    (home / "machine-id").write_text(f"{os.getpid():032x}\n")
    for name in _TARGETS:
        text = "[Unit]\nDefaultDependencies=no\n"
        (home / "targets" / f"{name}.target").write_text(text)
    wanted = "Requires=multi-user.target\nAfter=multi-user.target\n"
    (home / "targets" / "default.target").write_text(f"{text}{wanted}")
    group = f"dfq-test-{os.getpid()}"
    boot = _BOOT.replace('"$0"', f'"{PROGRAM}"')
    apart = ["unshare", "--mount", "--propagation", "private", "sh", "-ec"]
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as hears,
        (home / "log").open("wb") as log,
    ):
        address = str(home / "notify")
        hears.bind(address)
        hears.settimeout(LONG)
        ended = None
        process = subprocess.Popen(
            [*apart, _ENTER, "sh", home, group, boot, address],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        try:
            try:
                while b"READY=1" not in hears.recv(4096).split(b"\n"):
                    pass
            except TimeoutError:
                said = (home / "log").read_text(errors="replace")[-2000:]
                raise NotBooted(f"a systemd that starts in a namespace; it said: {said}") from None
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
            pid = int(children.split()[0])
            ended = os.pidfd_open(pid)
            yield Booted(home, pid)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
            if ended is not None:
                # The first of its namespace ends when all others have.
                select.select([ended], [], [], LONG)
                os.close(ended)
            subprocess.run([*apart, _TAKE_AWAY, "sh", home, group], check=False, timeout=LONG)
            shutil.rmtree(home / "targets", ignore_errors=True)
