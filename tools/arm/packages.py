"""Debian packages of another processor, without telling the system's apt of that processor.

apt is given package lists of its own; what it knows about the system is only read.
"""

from __future__ import annotations

from pathlib import Path

from tools.arm.places import cache
from tools.arm.shell import Failed, run, say

_TRIES = 4
NATIVE = "amd64"


class Packages:
    """The packages for this machine and one other processor, by Debian's name for it."""

    def __init__(self, architecture: str) -> None:
        self._lists = cache() / f"apt-{architecture}"
        (self._lists / "partial").mkdir(parents=True, exist_ok=True)
        architectures = dict.fromkeys([NATIVE, architecture])
        self._options = [
            f"-oDir::State::lists={self._lists}",
            "-oAPT::Sandbox::User=root",
            "-oAcquire::Retries=3",
            *(f"-oAPT::Architectures::={one}" for one in architectures),
        ]

    def update(self) -> None:
        """Fetch the lists; apt asks only for what is newer.

        A mirror that is being written to hands out lists that do not match, for a while; and a
        source that has nothing for the other processor is no matter. So a failure is only
        said: what can't be had without that list fails by its name.
        """
        for left in reversed(range(_TRIES)):
            try:
                run(["apt-get", *self._options, "-qq", "update"], seconds=300)
                return
            except Failed as failed:
                if not left:
                    say(f"not all package lists could be fetched: {failed}")

    def missing(self, *names: str) -> dict[str, str]:
        """What would have to be installed on this machine for these, and in which version."""
        command = ["apt-get", *self._options, "--simulate", "--no-install-recommends", "install"]
        planned = run([*command, *names], seconds=120).splitlines()
        installs = [line.split() for line in planned if line.startswith("Inst ")]
        return {words[1]: words[2].lstrip("(") for words in installs}

    def unpack(self, names: list[str], into: Path) -> None:
        """Download them and unpack them there; nothing is installed."""
        downloads = into / "downloads"
        downloads.mkdir(parents=True, exist_ok=True)
        run(["apt-get", *self._options, "-qq", "download", *names], seconds=600, cwd=downloads)
        for package in sorted(downloads.iterdir()):
            run(["dpkg-deb", "--extract", package, into], seconds=120)
            package.unlink()
        downloads.rmdir()
