"""Disks of a Raspberry Pi: an ext4 of our own whose power can be cut, and what is traced on it."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import dfq

HERE = Path(__file__).parent
PACKAGE = Path(dfq.__file__).parents[1]
#: EXT4_IOC_SHUTDOWN, and to drop what the journal has not written yet.
SHUTDOWN, NO_LOG_FLUSH = 0x8004_587D, 2


def missing(means: str) -> None:
    """In CI a missing means is a failure: a suite that skips there proves nothing."""
    if os.environ.get("CI", "").lower() in ("1", "true"):
        pytest.fail(f"CI must have {means}", pytrace=False)
    pytest.skip(f"needs {means}")


@pytest.fixture(autouse=True)
def _root_where_marked(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("needs_root") and os.geteuid() != 0:
        missing("root")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A clean one, in which `python` finds dfq."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("DFQ_")}
    return {**clean, "PYTHONPATH": f"{PACKAGE}:{HERE / 'children'}", "HOME": str(tmp_path)}


class Card:
    """A journaled ext4 in an image in memory: an SD card, but for its slowness."""

    def __init__(self, home: Path, size_mb: int = 64) -> None:
        self.image, self.root = home / "image", home / "card"
        self.root.mkdir()
        with self.image.open("wb") as made:
            made.truncate(size_mb << 20)
        command = ["mkfs.ext4", "-q", "-F", "-i", "2048", "-E", "lazy_itable_init=0", self.image]
        self._run(*command)
        self.mount()

    def mount(self, *options: str) -> None:
        """Put it in; the journal is replayed."""
        self._run("mount", "-o", ",".join(("loop", *options)), self.image, self.root)

    def cut_power(self) -> None:
        """From this moment on nothing reaches the disk, nor what is only in memory so far."""
        descriptor = os.open(self.root, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        finally:
            os.close(descriptor)

    def power_up(self) -> None:
        """Put it in again as the cut left it.

        A copy of it: where somebody else on this machine made a mount namespace meanwhile, the old
        one goes on to be mounted there.
        """
        self.close()
        left = self.image.rename(self.image.with_name("left"))
        self._run("cp", "--sparse=always", left, self.image)
        left.unlink()
        self.mount()

    def written_bytes(self) -> int:
        """What the disk was given to write so far."""
        self._run("sync", "-f", self.root)
        device = os.stat(self.root).st_dev
        path = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat")
        return int(path.read_text().split()[6]) * 512

    def close(self) -> None:
        """Take it out, whoever still stands in it."""
        subprocess.run(["umount", "-l", self.root], check=False, capture_output=True)

    def _run(self, *command: object) -> None:
        ran = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False)
        assert ran.returncode == 0, f"{command}: {ran.stderr}"


@pytest.fixture
def card() -> Iterator[Card]:
    """The card, mounted; only for root."""
    if shutil.which("mkfs.ext4") is None:
        missing("mkfs.ext4")
    shared = Path("/dev/shm")
    home = Path(tempfile.mkdtemp(prefix="dfq-card-", dir=shared if shared.is_dir() else None))
    made = Card(home)
    yield made
    made.close()
    shutil.rmtree(home, ignore_errors=True)


class Traced:
    """The calls that a script made between its marks."""

    #: A script makes this call, for which it has no other reason, where counting starts and ends.
    MARK = "getpgid"
    SYNCS = ("fsync", "fdatasync", "syncfs", "sync", "msync")
    WRITES = ("write", "pwrite64", "writev")

    def __init__(self, log: str, below: str) -> None:
        self.calls: list[tuple[str, str]] = []
        marks = 0
        for line in log.splitlines():
            found = re.match(r"\d+ +(\w+)\((.*)", line)
            if found is None:
                continue
            marks += found[1] == self.MARK
            if marks == 1 and (f"<{below}" in found[2] or found[1] == "sync"):
                self.calls.append((found[1], found[2]))

    @property
    def syncs(self) -> int:
        """How often it waited for the disk."""
        return sum(name in self.SYNCS for name, _ in self.calls)

    @property
    def written(self) -> int:
        """The bytes it wrote into files."""
        return sum(
            int(text.rpartition(" = ")[2].split()[0])
            for name, text in self.calls
            if name in self.WRITES
        )


@pytest.fixture
def strace(tmp_path: Path, environment: dict[str, str]):
    """Run a script under strace; with a fault if one is given."""
    program = shutil.which("strace")
    if program is None:
        missing("strace")

    def run(source: str, below: Path, *arguments: object, inject: str = "") -> tuple[Traced, str]:
        log = tmp_path / "strace.log"
        calls = ",".join((*Traced.SYNCS, *Traced.WRITES, Traced.MARK))
        faults = ["-e", f"inject={inject}"] if inject else []
        command = [program, "-f", "-qq", "-y", "-s", "0", "-e", f"trace={calls}", *faults]
        ran = subprocess.run(
            [*command, "-o", log, sys.executable, "-c", source, *map(str, (below, *arguments))],
            env=environment,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return Traced(log.read_text(), str(below)), ran.stdout

    return run
