"""Where things are, and which releases and processors there are."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from tools.arm.shell import Failed

REPOSITORY = Path(__file__).resolve().parent.parent.parent
#: Programs installed by pip beside the Python that runs this.
BIN = Path(sys.executable).parent
#: Set this to keep the toolchain and the file trees elsewhere.
CACHE_VARIABLE = "DFQ_ARM_CACHE"


def cache() -> Path:
    """The one directory that all of this is kept in."""
    own = os.environ.get(CACHE_VARIABLE)
    shared = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    path = Path(own) if own else Path(shared) / "dfq-arm"
    path.mkdir(parents=True, exist_ok=True)
    return path.resolve()


@dataclass(frozen=True)
class Target:
    """A processor that wheels are built for."""

    machine: str
    #: What Rust calls it.
    triple: str
    #: What Debian calls it; nothing: Debian has no Rust library for it, rustup has.
    debian: str | None
    #: What pip asks for on the oldest system that is served.
    compatibility: str = "manylinux_2_17"

    @property
    def name(self) -> str:
        """As the command line has it."""
        c_library = self.triple.rpartition("-")[2]
        return f"{self.machine}-musl" if c_library == "musl" else self.machine


TARGETS = {
    target.name: target
    for target in (
        Target("x86_64", "x86_64-unknown-linux-gnu", "amd64"),
        Target("aarch64", "aarch64-unknown-linux-gnu", "arm64"),
        Target("armv7l", "armv7-unknown-linux-gnueabihf", "armhf"),
        Target("x86_64", "x86_64-unknown-linux-musl", None, "musllinux_1_2"),
        Target("aarch64", "aarch64-unknown-linux-musl", None, "musllinux_1_2"),
    )
}
ARM64 = TARGETS["aarch64"]
ARM64_DEBIAN = "arm64"


@dataclass(frozen=True)
class Suite:
    """A release of Debian that Raspberry Pi OS is made of."""

    name: str
    python: str

    @property
    def root(self) -> Path:
        """Its file tree."""
        return cache() / f"root-{self.name}"

    @property
    def site(self) -> Path:
        """Where the packages of its Python are."""
        return self.root / "venv" / "lib" / f"python{self.python}" / "site-packages"


SUITES = {suite.name: suite for suite in (Suite("bookworm", "3.11"), Suite("trixie", "3.13"))}


def need_root(what: str) -> None:
    """Failed, unless this runs as root."""
    if os.geteuid() != 0:
        raise Failed(f"{what} mounts and changes its root directory; run it as root")
