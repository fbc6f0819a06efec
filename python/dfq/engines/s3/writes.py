"""Conditional writes that end in an answer, whatever the network does.

An answer may get lost, come late or come twice. Every body has a nonce, so a body that is read
back and equals ours is ours: that settles every doubt that can be settled. What each answer of
the store means for a write is written here, and nowhere else:

============================  ==================================================================
The store says                Then
============================  ==================================================================
done                          won
Exists, Changed, Missing      the key is read, for something between us may have repeated the
                              request: our own body there: won. Else: lost, nothing was done
StoreBusy (409, 503)          nothing was done: said to the caller, unless an earlier try is in
                              doubt, which is settled first
StoreUnsure (no answer)       the key is read. Our body there: won. The same as before: written
                              once more, after a pause. Something else: it is over, and only who
                              knows what the body meant can say how (``vanished``)
============================  ==================================================================
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from dfq.ambient import Chance
from dfq.errors import QueueBusy, QueueUnavailable, StoreBusy, StoreUnsure
from dfq.store import BodyTooLarge, Lost, Store

#: Lets so many seconds pass.
Pause = Callable[[float], object]

#: So often a write in doubt is looked at before the caller is told that nobody knows.
TRIES: Final = 6
#: Between tries: a random part of this, doubled each time up to the cap.
FIRST_WAIT_SECONDS: Final = 0.1
LONGEST_WAIT_SECONDS: Final = 1.0


@dataclass(frozen=True)
class Written:
    """What became of a write. ``etag`` names the version, if it was won."""

    end: Literal["won", "lost", "vanished"]
    etag: str = ""

    @property
    def won(self) -> bool:
        """Whether it is our body that counts."""
        return self.end == "won"


LOST = Written("lost")
VANISHED = Written("vanished")


class Writes:
    """The conditional writes of one handle."""

    def __init__(self, store: Store, chance: Chance, pause: Pause | None = None) -> None:
        self._store = store
        self._chance = chance
        # Nobody sets the event: it only takes its time.
        self._pause = pause or threading.Event().wait

    def nonce(self) -> str:
        """What makes a body like no other."""
        return f"{self._chance.bits(64):016x}"

    def create(self, key: str, body: bytes) -> Written:
        """Write a new key."""
        return self._settle(key, body, lambda: self._store.create(key, body), None)

    def replace(self, key: str, body: bytes, etag: str) -> Written:
        """Write in place of the version named."""
        return self._settle(key, body, lambda: self._store.replace(key, body, etag), etag)

    def delete(self, key: str, etag: str) -> bool:
        """Delete the version named; False if another is there. Gone already is as good."""
        for tried in range(TRIES):
            self._wait(tried)
            try:
                self._store.delete(key, etag)
            except StoreUnsure:
                if tried == TRIES - 1:
                    raise
            except Lost:
                # Some stores say so of a key that is gone.
                return False
            else:
                return True
        raise AssertionError("unreachable")

    def _wait(self, tried: int) -> None:
        """A store that does not answer well is asked less and less often."""
        if tried:
            longest = min(LONGEST_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2 ** (tried - 1))
            self._pause(self._chance.uniform(longest / 2, longest))

    def _settle(
        self, key: str, body: bytes, write: Callable[[], str], before: str | None
    ) -> Written:
        doubt: StoreUnsure | None = None
        for tried in range(TRIES):
            self._wait(tried)
            lost: Lost | None = None
            try:
                return Written("won", write())
            except StoreUnsure as error:
                doubt = doubt or error
            except StoreBusy:
                if doubt is None:
                    raise
            except Lost as error:
                lost = error
            try:
                found = self._store.read(key)
            except (QueueUnavailable, QueueBusy) as error:
                doubt = doubt or StoreUnsure(f"{key} may or may not be written: {error}")
                continue
            except BodyTooLarge:
                # No body of ours is as large.
                return LOST if lost is not None and doubt is None else VANISHED
            if found is not None and found.body == body:
                return Written("won", found.etag)
            if lost is not None and doubt is None:
                return LOST
            if before != (None if found is None else found.etag):
                return VANISHED
        assert doubt is not None
        raise doubt
