"""The command line: ``dfq``, or ``python -m dfq``."""

from __future__ import annotations

from typing import NoReturn


def main() -> NoReturn:
    """Run the command line and exit."""
    from dfq.cli.app import dfq

    dfq.main(prog_name="dfq")
    raise AssertionError("the command line exits by itself")
