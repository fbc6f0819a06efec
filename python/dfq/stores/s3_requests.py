"""Requests to one bucket: signed, counted, and tried again where the rules allow it."""

from __future__ import annotations

import threading
from typing import IO
from urllib.parse import quote

from dfq.ambient import Chance, Clock
from dfq.errors import QueueUnavailable, StoreBusy, StoreRefused, StoreUnsure
from dfq.store import RequestCounter
from dfq.stores.files import FileBody
from dfq.stores.s3_account import Place, Signer
from dfq.stores.s3_rules import (
    FIRST_WAIT_SECONDS,
    LONGEST_WAIT_SECONDS,
    PATIENCE_SECONDS,
    TRIES,
    Kind,
    Meaning,
    Rule,
    judge,
    told,
)
from dfq.stores.s3_wire import Answer, NoAnswer, Unreached, Wire
from dfq.stores.server_clock import ServerClock, seconds_of


class Requests:
    """Sends a request until the rules are satisfied: an answer, or the error they name."""

    def __init__(
        self, url: str, place: Place, signer: Signer, wire: Wire, *, clock: Clock, chance: Chance
    ) -> None:
        self.server_clock = ServerClock(clock)
        self.counter = RequestCounter()
        self._url = url
        self._place = place
        self._signer = signer
        self._wire = wire
        self._clock = clock
        self._chance = chance
        self._skew_seconds = 0.0
        self._closed = threading.Event()

    def send(
        self,
        kind: Kind,
        method: str,
        key: str,
        *,
        query: str = "",
        headers: dict[str, str] | None = None,
        body: bytes | FileBody = b"",
        into: IO[bytes] | None = None,
    ) -> tuple[Answer, Meaning]:
        """The answer, and whether it means done, lost or gone. Everything else raises.

        The body of a good answer goes ``into`` a file, if one is given.
        """
        started = self._clock.boot()
        sent: dict[Meaning, int] = {}
        while True:
            answer, rule, said = self._try(kind, method, key, query, headers or {}, body, into)
            if answer is not None and rule.meaning in ("done", "lost", "gone"):
                return answer, rule.meaning
            what = f"{self._url}: can't {_VERBS[kind]} {key or 'its keys'}: {said}"
            sent[rule.meaning] = sent.get(rule.meaning, 0) + 1
            over = self._clock.boot() - started >= PATIENCE_SECONDS
            if over or self._is_final(kind, rule, sent[rule.meaning]):
                raise _error(kind, rule, what)
            if rule.meaning != "skewed":
                self._wait(sum(sent.values()))

    def ask_time(self) -> float:
        """The server's clock; asks for it if no answer has told it yet."""
        now = self.server_clock.now()
        if now is None:
            # Any answer will do, a refusal too: all have a date.
            self._try("get", "HEAD", "", "", {}, b"")
            now = self.server_clock.now()
        if now is None:
            raise QueueUnavailable(
                f"{self._url} doesn't tell the time: no answer, or one without a Date; "
                f"check that {self._place.origin} is up and an S3 store"
            )
        return now

    def close(self) -> None:
        """End the waits and close the connections."""
        self._closed.set()
        self._wire.close()

    def _try(
        self,
        kind: Kind,
        method: str,
        key: str,
        query: str,
        headers: dict[str, str],
        body: bytes | FileBody,
        into: IO[bytes] | None = None,
    ) -> tuple[Answer | None, Rule, str]:
        path = self._place.path + quote(key, safe="/~")
        target = f"{path}?{query}" if query else path
        seconds = self._clock.wall() + self._skew_seconds
        # With its Host a request is signed without taking the URL apart again.
        given = {"Host": self._place.authority, **headers}
        proof: bytes | str
        content: bytes | IO[bytes]
        if isinstance(body, bytes):
            proof, content = body, body
        else:
            proof, content = body.rewound(given), body.file
        signed = self._signer.sign(method, self._place.origin + target, given, proof, seconds)
        if into is not None:
            into.seek(0)
            into.truncate()
        self.counter.add(kind)
        try:
            answer = self._wire.send(method, target, signed, content, into)
        except Unreached as error:
            return None, Rule("unreached"), f"{self._place.origin} can't be reached: {error}"
        except NoAnswer as error:
            return None, Rule("unsure"), f"{self._place.origin}: {error}"
        self._note_date(answer)
        rule = judge(kind, answer)
        if rule.meaning == "skewed":
            self._skew_seconds = self.server_clock.ahead_of(self._clock.wall())
        return answer, rule, told(answer)

    def _note_date(self, answer: Answer) -> None:
        date = answer.header("Date")
        seconds = None if date is None else seconds_of(date)
        if seconds is not None:
            self.server_clock.saw(seconds)

    def _is_final(self, kind: Kind, rule: Rule, sent: int) -> bool:
        if rule.meaning == "unsure" and kind in ("put", "delete"):
            return True
        return self._closed.is_set() or sent >= TRIES.get(rule.meaning, 1)

    def _wait(self, sent: int) -> None:
        longest = min(LONGEST_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2 ** (sent - 1))
        self._closed.wait(self._chance.uniform(0.0, longest))


_VERBS: dict[Kind, str] = {"put": "write", "get": "read", "list": "list", "delete": "delete"}


def _error(kind: Kind, rule: Rule, what: str) -> Exception:
    if rule.meaning in ("refused", "skewed"):
        return StoreRefused(f"{what}; {rule.advice}")
    if rule.meaning == "not_now":
        return StoreBusy(f"{what}; nothing was changed, try again later")
    if rule.meaning == "unreached":
        return QueueUnavailable(
            f"{what}; check the network, the endpoint and that the store is running"
        )
    if kind in ("put", "delete"):
        return StoreUnsure(f"{what}; whether it was done is unknown: read it again")
    return QueueUnavailable(f"{what}; check the network and the store, or raise ?timeout=…")
