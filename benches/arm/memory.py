"""What a process has in memory, without what the emulator has.

QEMU gives the program low addresses and keeps high ones for itself: its own code, its heap and
the translated code, which alone is larger than the program. Where there is no emulator, all
addresses count but the kernel's.
"""

from __future__ import annotations

import re
from pathlib import Path

#: A program under qemu-aarch64 stays below; QEMU itself stays above.
_EMULATOR_BEGINS = 1 << 40
_MAPPING = re.compile(r"^(?P<start>[0-9a-f]+)-[0-9a-f]+ \S+ \S+ \S+ \S+\s*(?P<path>.*)$")


def resident_kilobytes(pid: int) -> tuple[int, int]:
    """Of the program and of the emulator."""
    return split(Path(f"/proc/{pid}/smaps").read_text())


def split(smaps: str) -> tuple[int, int]:
    """The same, from the text of smaps."""
    program = emulator = 0
    emulated = "/qemu-" in smaps
    start = 0
    for line in smaps.splitlines():
        mapping = _MAPPING.match(line)
        if mapping:
            start = int(mapping["start"], 16)
            if "/qemu-" in mapping["path"] and start < _EMULATOR_BEGINS:
                raise AssertionError(f"the emulator is not where it is looked for: {line}")
        elif line.startswith("Rss:"):
            if emulated and start >= _EMULATOR_BEGINS:
                emulator += int(line.split()[1])
            else:
                program += int(line.split()[1])
    return program, emulator
