"""What holds the engine together, and how to take it out: the simulation must notice.

    python -m tests.simulation.guards [NAME ...]

runs seeds without each of these until one finds something, and tells which. Exits with 1 if a
guard can go without anybody noticing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from dfq.engines.s3 import applying, beats, finished, looking, rescuing, settling, sweeping
from dfq.engines.s3.beats import Held
from dfq.engines.s3.bodies import TaskFile
from dfq.engines.s3.settling import Settling
from dfq.engines.s3.writes import Writes
from tests.simulation.network import Connection

#: So many seeds are run before a guard counts as one that nobody misses.
PATIENCE = 6_000


@dataclass(frozen=True)
class Guard:
    """Something that no calm day needs."""

    what: str
    #: What to put in place of what: an owner, the name of its attribute, the new one.
    patches: tuple[tuple[Any, str, Any], ...]

    @contextmanager
    def taken_out(self) -> Iterator[None]:
        """Run without it."""
        owner, name, new = self.patches[0]
        with patch.object(owner, name, new):
            if len(self.patches) == 1:
                yield
                return
            with Guard(self.what, self.patches[1:]).taken_out():
                yield


def _create_blindly(self: Connection, key: str, body: bytes) -> str:
    return self.put(key, body)


def _replace_blindly(self: Connection, key: str, body: bytes, etag: str) -> str:
    return self.put(key, body)


_delete = Connection.delete


def _delete_blindly(self: Connection, key: str, etag: str | None = None) -> bool:
    return _delete(self, key)


def _never(*given: Any) -> bool:
    return False


def _for_ever(self: Held) -> float:
    return self.signed_boot + 10 * self.seconds


GUARDS = {
    "nonce": Guard(
        "the nonce in every body: without, a body that is read back tells nothing",
        ((Writes, "nonce", lambda self: "0"),),
    ),
    "fence": Guard(
        "the fence of a new lease, greater than the last one's",
        ((TaskFile, "fence", property(lambda self: 0)),),
    ),
    "void": Guard(
        "an older lease decides nothing",
        ((applying, "is_void", _never), (settling, "is_void", _never)),
    ),
    "if-none-match": Guard("the condition of a create", ((Connection, "create", _create_blindly),)),
    "if-match": Guard("the condition of a replace", ((Connection, "replace", _replace_blindly),)),
    "if-match-on-delete": Guard(
        "the condition of a delete", ((Connection, "delete", _delete_blindly),)
    ),
    "late-copies": Guard(
        "a task that came late is looked up among the finished",
        ((looking, "came_late", _never),),
    ),
    "kept": Guard(
        "the end of a task stays in its register for a while",
        ((finished, "KEPT_SECONDS", 0.0), (sweeping, "KEPT_SECONDS", 0.0)),
    ),
    "whole-seconds": Guard(
        "a second is granted, as the store's times have no fraction",
        ((beats, "GRANTED_SECONDS", 0.0), (rescuing, "GRANTED_SECONDS", 0.0)),
    ),
    "doubtful-lease": Guard(
        "a lease that may have ended is compared with its task",
        ((Settling, "_refuse_if_void", lambda self, lease, **_: None),),
    ),
    "late-beats": Guard(
        "a sign of life counts only if its answer comes in time",
        ((Held, "certain_until", property(_for_ever)),),
    ),
}


def main() -> int:
    """The command line."""
    from tests.simulation.seeds import findings

    unknown = set(sys.argv[1:]) - set(GUARDS)
    if unknown:
        sys.exit(f"no guards: {', '.join(sorted(unknown))}; there are {', '.join(GUARDS)}")
    missed = 0
    for name in sys.argv[1:] or GUARDS:
        first = next(findings(range(PATIENCE), without=name), None)
        missed += first is None
        told = f"nobody misses it in {PATIENCE:,} seeds" if first is None else first
        print(f"{name} ({GUARDS[name].what}):\n  {told}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
