"""Run a program inside the arm64 tree, by QEMU.

In namespaces of its own: whatever is mounted goes away with it, and whatever it started ends
with it. The checkout is to be seen at its own path and can't be written to.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from tools.arm.places import REPOSITORY, Suite, need_root
from tools.arm.shell import Command, show

#: A Raspberry Pi 4. QEMU's own default has instructions that no Pi has.
CPU = "cortex-a72"
#: Where Python keeps what it has compiled, from run to run.
BYTECODE = "var/cache/python"

_ENTER = """
root=$1 checkout=$2 shared=$3; shift 3
# A mount of its own: only so can tests make namespaces in it.
mount --bind "$root" "$root"
mkdir -p "$root/proc" "$root/dev" "$root/sys" "$root/tmp" "$root/root" "$root/out"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
# As on a Pi, and so that no benchmark depends on the disk of this machine.
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
# After that: a checkout may lie below /tmp, which is empty now.
mkdir -p "$root$checkout"
mount --bind "$checkout" "$root$checkout"
mount -o remount,bind,ro "$root$checkout"
mount --bind "$shared" "$root/out"
exec chroot "$root" /bin/sh -c 'cd "$0" && exec "$@"' "$checkout" "$@"
"""


def run(
    suite: Suite,
    command: Command,
    *,
    seconds: float,
    shared: Path,
    env: Mapping[str, str] | None = None,
    log: Path | None = None,
) -> int:
    """The exit code; ``shared`` is /out inside, where the program leaves what is to be kept."""
    need_root("the arm64 tree")
    environment = {
        "HOME": "/root",
        "LANG": "C.UTF-8",
        "TERM": os.environ.get("TERM", "dumb"),
        "PATH": "/venv/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        # The checkout is read-only, Debian's own Python comes uncompiled, and compiling it anew
        # for every start takes most of what a start takes in the emulator.
        "PYTHONPYCACHEPREFIX": f"/{BYTECODE}",
        # Sets in the names of tests: two processes have to agree on their order.
        "PYTHONHASHSEED": "0",
        "CI": "true",
        "HYPOTHESIS_STORAGE_DIRECTORY": "/root/hypothesis",
        "QEMU_CPU": CPU,
        **(env or {}),
    }
    inside = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child"]
    entering: Command = (*inside, "/bin/sh", "-ec", _ENTER, "sh", suite.root, REPOSITORY, shared)
    return show([*entering, *command], seconds=seconds, env=environment, log=log)
