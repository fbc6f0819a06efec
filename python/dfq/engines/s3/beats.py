"""Signs of life: one object per process keeps all its leases alive, however many they are.

A lease is over when the store's clock says that its last sign of life is too long ago. There are
two: when lease.json was written, and when the beat of its process was that names it. Times of
objects are in whole seconds, so which came later can't be told for sure: the one counts that is
over last, and a second is granted. What another process writes for the holder (a state, a
heartbeat) can so take nothing from the lease.

A beat can't be compared and swapped with a lease, so it only prolongs leases that are certainly
alive when it arrives: if the answer comes within the time that the sign before it bought, nobody
can have judged the lease as over meanwhile. A holder that comes too late for that writes
lease.json itself, and that write wins or loses against whoever takes the lease over.
"""

from __future__ import annotations

import math
import os
import re
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from dfq.cost import Usage
from dfq.engines.s3.bodies import VERSION, LeaseFile, TaskFile, dumps, stamp
from dfq.engines.s3.bucket import Bucket
from dfq.engines.s3.fields import span
from dfq.engines.s3.keys import WORKERS, beat_key
from dfq.engines.s3.tally import told_usage
from dfq.engines.s3.writes import TRIES, Written
from dfq.errors import DfqError, StoreUnsure
from dfq.store import CLOCK_SECONDS

#: What the store's times may be off by is granted to the holder.
GRANTED_SECONDS: Final = CLOCK_SECONDS
#: The names of processes are ids that dfq made.
_SESSION: Final = re.compile(r"[0-9a-z]{1,64}", re.ASCII)
#: The beats of so many processes are remembered.
_REMEMBERED: Final = 1_000


@dataclass
class Held:
    """A lease that this process holds, as far as it knows."""

    lease: LeaseFile
    task: TaskFile
    attempt: int
    seconds: float
    #: When the request was sent off that was the last sign of life, on our own clock and the
    #: store's.
    signed_boot: float
    signed_wall: float

    @property
    def certain_until(self) -> float:
        """Until then nobody can judge it as over, by our own clock."""
        return self.signed_boot + self.seconds


@dataclass(frozen=True)
class _Beat:
    #: When it was asked for, on our own clock.
    read_at: float
    modified: float
    #: lease_id -> how old the sign was when this was written, and for how long it counts
    leases: dict[str, tuple[float, float]]


class Beats:
    """The signs of life of this process, and those of others."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._held: dict[str, Held] = {}
        self._session = ""
        self._etag: str | None = None
        # session -> the beat of that process as it was read last
        self._read_before: dict[str, _Beat] = {}

    # Ours

    def hold(self, held: Held) -> None:
        """A lease was taken."""
        with self._lock:
            self._held[held.lease.lease_id] = held

    def hold_on(self, held: Held) -> None:
        """A lease was written anew. Another thread may have ended it since."""
        with self._lock:
            if held.lease.lease_id in self._held:
                self._held[held.lease.lease_id] = held

    def get(self, lease_id: str) -> Held | None:
        """What is known of a lease, if this process took it. A forked child is another."""
        with self._lock:
            held = self._held.get(lease_id)
        if held is None or held.lease.session != self._bucket.session:
            return None
        return held

    def forget(self, lease_id: str) -> None:
        """A lease ended."""
        with self._lock:
            self._held.pop(lease_id, None)

    def expect(self, lease_id: str, seconds: float, boot: float, wall: float) -> None:
        """A sign of life is about to be given."""
        with self._lock:
            held = self._held.get(lease_id)
        if held is not None:
            _expect(held, seconds, boot, wall)

    def prolong(self, held: Sequence[Held], seconds: float) -> list[Held]:
        """Give a sign of life for leases, with one write; those it came too late for are returned.

        They are not lost yet, but only their own lease.json can tell.
        """
        boot, wall = self._bucket.clock.boot(), self._bucket.clock.wall()
        alive = [one for one in held if boot < one.certain_until]
        late = [one for one in held if boot >= one.certain_until]
        for one in alive:
            _expect(one, seconds, boot, wall)
        if alive:
            self._write(boot, {one.lease.lease_id: seconds for one in alive})
        answered = self._bucket.clock.boot()
        for one in alive:
            if answered < one.certain_until:
                one.signed_boot, one.signed_wall, one.seconds = boot, wall, seconds
            else:
                late.append(one)
        return late

    def tell(self) -> None:
        """Say what this process did, if that is worth a write and no beat says it; renews none."""
        if self._bucket.tally.is_worth_telling():
            with suppress(DfqError):
                self._write(self._bucket.clock.boot(), {})

    def farewell(self) -> None:
        """The same for the last time: one request, whatever becomes of it."""
        if self._bucket.tally.is_worth_telling():
            with suppress(DfqError), self._writing:
                body = self._body(self._bucket.clock.boot(), {})
                self._bucket.store.put(beat_key(self._bucket.session), body)

    def _write(self, boot: float, renewed: dict[str, float]) -> None:
        bucket = self._bucket
        with self._writing:
            if self._session != bucket.session:
                self._session, self._etag = bucket.session, None
            written = self._swap(self._body(boot, renewed))
            self._etag = written.etag

    def _body(self, boot: float, renewed: dict[str, float]) -> bytes:
        bucket = self._bucket
        with self._lock:
            leases = {
                lease_id: (0.0, renewed[lease_id])
                if lease_id in renewed
                else (boot - held.signed_boot, held.seconds)
                for lease_id, held in self._held.items()
            }
        return dumps(
            {
                "dfq": VERSION,
                "session": bucket.session,
                "host": os.uname().nodename,
                "pid": os.getpid(),
                "at": stamp(bucket.clock.wall()),
                "leases": leases,
                **bucket.tally.fields(),
                "nonce": bucket.writes.nonce(),
            }
        )

    def _swap(self, body: bytes) -> Written:
        """Only the version we know is replaced: an older beat that comes late changes nothing."""
        key = beat_key(self._session)
        if self._etag is not None:
            written = self._bucket.writes.replace(key, body, self._etag)
            if written.won:
                return written
        for _ in range(TRIES):
            written = self._bucket.writes.create(key, body)
            if written.won:
                return written
            # An earlier beat of ours whose answer never came, or a sweep took it away.
            found = self._bucket.read_odd(key)
            if found is not None:
                written = self._bucket.writes.replace(key, body, found.etag)
                if written.won:
                    return written
        raise StoreUnsure(
            f"the sign of life in {key} can't be written: {self._bucket.store.url} says of it now "
            "that it is there, now that it is not; look at what else uses this key"
        )

    # Everybody's

    def last_sign(self, lease: LeaseFile, read_after: float = math.inf) -> tuple[float, float]:
        """The sign of life of a lease that is over last: when it was given, and for how long.

        A beat that was read after that moment, on our own clock, is not read again.
        """
        beat = None if lease.session is None else self._read_before.get(lease.session)
        if beat is None or beat.read_at < read_after:
            beat = None if lease.session is None else self._read(lease.session)
        return self._later(lease, beat)

    def _later(self, lease: LeaseFile, beat: _Beat | None) -> tuple[float, float]:
        since, seconds = lease.modified, lease.seconds(self._bucket.policy)
        if beat is not None and lease.lease_id in beat.leases:
            age, counts = beat.leases[lease.lease_id]
            sign = beat.modified - age
            if sign + counts > since + seconds:
                return sign, counts
        return since, seconds

    def usage(self) -> list[Usage]:
        """What the processes told that gave a sign within a day; this one as it is now."""
        ours = beat_key(self._bucket.session)
        keys = [one.key for one in self._bucket.list_all(WORKERS) if one.key != ours]
        bodies = [found.body for found in self._bucket.map(self._bucket.read_odd, keys) if found]
        told = [usage for body in bodies if (usage := told_usage(body)) is not None]
        return [*told, self._bucket.tally.usage()]

    def over_at(self, lease: LeaseFile, now: float, read_after: float) -> float:
        """From when on a lease is over; costs a request only if it may be over now.

        What a beat told that was read after that moment, on our own clock, is alive is taken for
        alive; that a lease is over only the newest can tell.
        """
        at = lease.modified + lease.seconds(self._bucket.policy) + GRANTED_SECONDS
        if at > now:
            return at
        known = None if lease.session is None else self._read_before.get(lease.session)
        if known is not None and known.read_at < read_after:
            known = None
        since, seconds = self._later(lease, known)
        if since + seconds + GRANTED_SECONDS <= now:
            since, seconds = self.last_sign(lease)
        return since + seconds + GRANTED_SECONDS

    def _read(self, session: str) -> _Beat | None:
        beat = self._read_beat(session)
        if beat is None:
            self._read_before.pop(session, None)
        else:
            if len(self._read_before) >= _REMEMBERED:
                self._read_before.clear()
            self._read_before[session] = beat
        return beat

    def _read_beat(self, session: str) -> _Beat | None:
        if not _SESSION.fullmatch(session):
            return None
        read_at = self._bucket.clock.boot()
        found = self._bucket.read_odd(beat_key(session))
        if found is None:
            return None
        try:
            leases = {
                str(lease_id): (_seconds(age), _seconds(seconds))
                for lease_id, (age, seconds) in orjson.loads(found.body)["leases"].items()
            }
        except (ValueError, TypeError, KeyError, AttributeError):
            # Damaged: it is no sign of life, and the next beat replaces it.
            return None
        return _Beat(read_at, found.modified, leases)


def _seconds(value: Any) -> float:
    """A number of seconds from 0 on; raises Damaged."""
    return max(0.0, span({"seconds": max(0.0, value)}, "seconds", 0.0))


def _expect(held: Held, seconds: float, boot: float, wall: float) -> None:
    """A sign that counts for less time than the last one may be seen before its answer is."""
    if boot + seconds < held.certain_until:
        held.signed_boot, held.signed_wall, held.seconds = boot, wall, seconds


def taken(lease: LeaseFile, task: TaskFile, seconds: float, boot: float, wall: float) -> Held:
    """What is held after a lease was taken by a request that was sent off at ``boot``."""
    return Held(lease, task, task.checked.attempts + 1, seconds, boot, wall)


def rewritten(held: Held, lease: LeaseFile, seconds: float, boot: float, wall: float) -> Held:
    """What is held after lease.json was written anew."""
    return replace(held, lease=lease, seconds=seconds, signed_boot=boot, signed_wall=wall)
