"""Build a wheel, and hold it to what it promises.

zig links it: its C library is told which version to be, so that a wheel built on this year's
system runs on one with glibc 2.17. maturin then checks the symbols, auditwheel checks them
again, and the extension's size is counted.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

from tools.arm.places import BIN, REPOSITORY, Target
from tools.arm.shell import Failed, run, say
from tools.arm.toolchain import rust_environment

#: Of the stripped extension, as a Pi has to read it from its card.
MAX_EXTENSION_BYTES = 2_000_000
#: One wheel serves this Python and all after it.
_PYTHON = "cp311-abi3"
OUTPUT = REPOSITORY / "dist"
#: ELF's names of processors (e_machine), to see that the file is what it is called.
_ELF_MACHINES = {"x86_64": 62, "aarch64": 183, "armv7l": 40}


def build(target: Target) -> Path:
    """The checked wheel for a processor, in dist/."""
    environment = rust_environment(target)
    # maturin asks the first Python on the path for zig.
    environment["PATH"] = f"{BIN}:{environment['PATH']}"
    OUTPUT.mkdir(exist_ok=True)
    for old in _built(target):
        old.unlink()
    run(
        [
            BIN / "maturin", "build", "--release", "--locked", "--zig",
            "--target", target.triple, "--compatibility", target.compatibility,
            "--out", OUTPUT,
        ],
        seconds=1200, env=environment, cwd=REPOSITORY,
    )  # fmt: skip
    wheel = find(target)
    check(wheel, target)
    return wheel


def find(target: Target) -> Path:
    """The wheel that was built for a processor."""
    found = _built(target)
    if len(found) != 1:
        raise Failed(f"{len(found)} wheels for {target.name} in {OUTPUT}; there should be one")
    return found[0]


def _built(target: Target) -> list[Path]:
    return sorted(OUTPUT.glob(f"dfq-*{target.compatibility}_{target.machine}.whl"))


def check(wheel: Path, target: Target) -> None:
    """Failed, if the wheel is too large, of another processor, or asks for a newer system."""
    extension = read_extension(wheel)
    machine = int.from_bytes(extension[18:20], "little")
    if extension[:4] != b"\x7fELF" or machine != _ELF_MACHINES[target.machine]:
        raise Failed(f"the extension in {wheel.name} is not for {target.machine}")
    if len(extension) > MAX_EXTENSION_BYTES:
        raise Failed(
            f"the extension in {wheel.name} has {len(extension):,} bytes; "
            f"at most {MAX_EXTENSION_BYTES:,} are allowed. What was added to Cargo.toml?"
        )
    if _PYTHON not in wheel.name or target.compatibility not in wheel.name:
        raise Failed(f"{wheel.name} should be {_PYTHON} and {target.compatibility}")
    if target.compatibility.startswith("musl"):
        _check_musl(wheel.name, extension)
    else:
        said = run([BIN / "auditwheel", "show", wheel], seconds=60)
        if f'"{target.compatibility}_{target.machine}"' not in said:
            raise Failed(f"auditwheel finds that it needs another system:\n{said}")
    say(f"{wheel.name} is as it should be; the extension has {len(extension):,} bytes")


def _check_musl(name: str, extension: bytes) -> None:
    """musl has no versions of symbols; what it must not need is other libraries.

    auditwheel would follow libc.so to this machine's, which is glibc's, and give up.
    """
    from elftools.elf.dynamic import DynamicSection
    from elftools.elf.elffile import ELFFile

    dynamic = ELFFile(io.BytesIO(extension)).get_section_by_name(".dynamic")
    if not isinstance(dynamic, DynamicSection):
        raise Failed(f"the extension in {name} is no shared library")
    needed = {
        getattr(tag, "needed", "") for tag in dynamic.iter_tags() if tag.entry.d_tag == "DT_NEEDED"
    }
    if needed != {"libc.so"}:
        raise Failed(f"the extension in {name} needs {sorted(needed)}; it may need libc.so only")


def read_extension(wheel: Path) -> bytes:
    """The one shared object in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.endswith(".so")]
        if len(names) != 1:
            raise Failed(f"{wheel.name} has {len(names)} extensions; there should be one")
        return archive.read(names[0])
