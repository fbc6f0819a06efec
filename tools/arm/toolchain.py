"""A Rust compiler that has the target's standard library.

The one on the PATH, if it has it (`rustup target add`). Otherwise Debian's: rustc-web is kept
as new as browsers need it, and is the same build on all processors. It is unpacked beside the
system, so the Rust that is installed is not touched. Debian's library does not fit another
compiler, not even one of the same version.
"""

from __future__ import annotations

import os
import re
import shutil
import tomllib
from pathlib import Path

from tools.arm.packages import Packages
from tools.arm.places import REPOSITORY, Target, cache
from tools.arm.shell import Failed, run, say

_PROGRAMS = ("rustc", "cargo", "rustdoc")


def rust_environment(target: Target) -> dict[str, str]:
    """Variables to build for the target with."""
    environment = dict(os.environ)
    # Each of these, set by somebody for other builds, would quietly take the place of zig.
    for name in list(environment):
        if name in ("RUSTC", "RUSTFLAGS", "CARGO_BUILD_RUSTFLAGS", "CARGO_BUILD_TARGET") or (
            name.startswith("CARGO_TARGET_") and name.endswith(("_LINKER", "_RUSTFLAGS"))
        ):
            del environment[name]
    if not _has_library(target):
        programs = _debian(target.debian, target.triple)
        environment["PATH"] = f"{programs}:{environment['PATH']}"
    return environment


def _has_library(target: Target) -> bool:
    if shutil.which("rustc") is None:
        return False
    sysroot = Path(run(["rustc", "--print", "sysroot"], seconds=60).strip())
    return any((sysroot / "lib/rustlib" / target.triple / "lib").glob("libstd-*.rlib"))


def _debian(architecture: str | None, triple: str) -> Path:
    """Debian's compiler with the target's library: the directory its programs are in."""
    if architecture is None or shutil.which("apt-get") is None:
        raise Failed(f"this Rust can't build for {triple}; run `rustup target add {triple}`")
    place = cache() / f"rust-{architecture}"
    programs = place / "bin"
    if not (place / ".done").exists():
        say(f"fetching Debian's Rust for {architecture}")
        shutil.rmtree(place, ignore_errors=True)
        packages = Packages(architecture)
        packages.update()
        tools = packages.missing("rustc-web", "cargo-web")
        # A C compiler has to be installed for good: build scripts are linked by it.
        if "gcc" in tools:
            raise Failed("there is no C compiler; run `apt-get install gcc libc6-dev`")
        _check_age(tools["rustc-web"])
        # The very same build, or the compiler does not know it for its own.
        library = f"libstd-rust-web-dev:{architecture}={tools['rustc-web']}"
        packages.unpack([*tools, library], place)
        programs.mkdir()
        for name in _PROGRAMS:
            _wrap(place, programs / name)
        (place / ".done").touch()
    say(run([programs / "rustc", "--version"], seconds=60).strip())
    return programs


def _check_age(version: str) -> None:
    """Security updates bring new compilers; without their list there is only the first one."""
    cargo = tomllib.loads((REPOSITORY / "Cargo.toml").read_text())
    needed = cargo["workspace"]["package"]["rust-version"]
    if _numbers(version) < _numbers(needed):
        raise Failed(
            f"apt offers Rust {version}, dfq needs {needed}; is there a line for Debian's "
            "security updates in the system's sources, and can its list be fetched now?"
        )


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version.partition("+")[0])[:2]]


def _wrap(place: Path, program: Path) -> None:
    """A script that runs the program with the libraries it was unpacked with."""
    libraries = ":".join(f"{place}/{top}/x86_64-linux-gnu" for top in ("usr/lib", "lib"))
    program.write_text(
        "#!/bin/sh\n"
        f'export LD_LIBRARY_PATH="{libraries}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"\n'
        f'exec "{place}/usr/bin/{program.name}" "$@"\n'
    )
    program.chmod(0o755)
