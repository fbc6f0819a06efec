"""Where benchmarks run: a tmpfs, and a fresh journaled ext4 image on a loop mount.

Never the machine's own disk. What that is (journal or none, how full, how old) decides a
file benchmark more than the program does, and nobody else can repeat it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

GIB = 1 << 30

#: Set this to put the ext4 image elsewhere; its fsync costs what that disk's does.
IMAGE_DIRECTORY_VARIABLE = "DFQ_BENCH_IMAGE_DIR"


class NoBenchFilesystem(RuntimeError):
    """The benchmark has no filesystem to run on; the message says what to do."""


@dataclass(frozen=True)
class Ground:
    """A filesystem for benchmarks: an empty directory, and what to call it in a table."""

    name: str
    root: Path
    description: str

    @contextmanager
    def directory(self) -> Iterator[Path]:
        """A new directory, removed afterwards."""
        path = Path(tempfile.mkdtemp(prefix="bench-", dir=self.root))
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def settle(self) -> None:
        """Write out what is dirty, so that nobody pays for what another left behind."""
        descriptor = os.open(self.root, os.O_RDONLY)
        try:
            ctypes.CDLL(None, use_errno=True).syncfs(descriptor)
        finally:
            os.close(descriptor)


def _run(*command: str | Path) -> None:
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NoBenchFilesystem(f"{command[0]} failed: {done.stderr.strip() or done.stdout}")


def _need_root(what: str) -> None:
    if os.geteuid() != 0:
        raise NoBenchFilesystem(
            f"{what} needs root to mount it; run the benchmarks as root, or with --only tmpfs"
        )
    missing = [tool for tool in ("mkfs.ext4", "mount", "umount") if shutil.which(tool) is None]
    if missing:
        raise NoBenchFilesystem(
            f"{what} needs {', '.join(missing)}; install e2fsprogs and util-linux"
        )


@contextmanager
def tmpfs(size_gib: int = 12) -> Iterator[Ground]:
    """A private tmpfs; without root, a directory in /dev/shm."""
    if os.geteuid() == 0 and shutil.which("mount"):
        root = Path(tempfile.mkdtemp(prefix="dfq-tmpfs-"))
        _run("mount", "-t", "tmpfs", "-o", f"size={size_gib}g,nr_inodes=0", "dfq-bench", root)
        try:
            yield Ground("tmpfs", root, "a private tmpfs")
        finally:
            _unmount(root)
        return
    shared = Path("/dev/shm")
    if not os.access(shared, os.W_OK):
        raise NoBenchFilesystem("/dev/shm is not writable; run as root to mount a private tmpfs")
    root = Path(tempfile.mkdtemp(prefix="dfq-tmpfs-", dir=shared))
    try:
        yield Ground("tmpfs", root, "a directory in /dev/shm")
    finally:
        shutil.rmtree(root, ignore_errors=True)


@contextmanager
def ext4(size_gib: int = 3) -> Iterator[Ground]:
    """A fresh ext4 with a journal, in an image on a loop mount."""
    _need_root("a journaled ext4 image")
    place = os.environ.get(IMAGE_DIRECTORY_VARIABLE) or tempfile.gettempdir()
    work = Path(tempfile.mkdtemp(prefix="dfq-ext4-", dir=place))
    try:
        image, root = work / "image", work / "mnt"
        root.mkdir()
        _write_zeros(image, size_gib * GIB)
        # Everything mkfs would leave for later is done now, so that no kernel thread writes
        # tables while a benchmark runs. Small files: an inode for every block.
        _run(
            "mkfs.ext4", "-q", "-F", "-i", "4096", "-O", "has_journal", "-J", "size=256",
            "-E", "lazy_itable_init=0,lazy_journal_init=0", image,
        )  # fmt: skip
        _run("mount", "-o", "loop,data=ordered", image, root)
        try:
            yield Ground("ext4", root, "a fresh journaled ext4 image (data=ordered), loop mount")
        finally:
            _unmount(root)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _write_zeros(path: Path, size: int) -> None:
    """Blocks that exist: a hole or an unwritten extent would be allocated under the stopwatch."""
    zeros = bytes(8 << 20)
    with path.open("wb", buffering=0) as file:
        for _ in range(size // len(zeros)):
            file.write(zeros)
        os.fsync(file.fileno())


def _unmount(root: Path) -> None:
    with contextlib.suppress(NoBenchFilesystem):
        _run("umount", root)
        root.rmdir()
        return
    # A process of a failed run may still stand in it: detach now, free when it leaves.
    _run("umount", "--lazy", root)


GROUNDS = {"tmpfs": tmpfs, "ext4": ext4}
