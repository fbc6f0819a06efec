"""Whether a store is safe for a queue: tried out before it is trusted, and remembered.

In a corner of its own, which is cleared afterwards, every promise of :class:`dfq.store.Store` is
put to the test: first alone, then by writers that race to create, replace and delete. A store
that breaks one is refused with what it got wrong; the one promise that a queue can do without is
the conditional delete. What passed is remembered in the store, with the name of what serves it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, cast

import orjson

from dfq.ambient import Chance, Clock
from dfq.errors import QueueUnavailable, StoreBusy, StoreNotSafe
from dfq.store import Store
from dfq.stores.certify_checks import (
    Deleting,
    check_create,
    check_delete,
    check_listing,
    check_replace,
    check_time,
    probe_conditional_delete,
)
from dfq.stores.certify_races import (
    Rounds,
    ToDelete,
    race_to_create,
    race_to_delete,
    race_to_replace,
)
from dfq.stores.certify_scratch import Scratch, Wrong
from dfq.stores.verdict import CHECKS_VERSION, Verdict

#: Where a verdict is remembered.
CERTIFIED_KEY: Final = "certified.json"

WRITERS: Final = 8
ROUNDS: Final = 10
#: Of each race; on a store that is slow under contention fewer rounds fit in.
RACE_SECONDS: Final = 2.0


def certify(
    store: Store,
    *,
    chance: Chance,
    clock: Clock,
    writers: int = WRITERS,
    rounds: int = ROUNDS,
    race_seconds: float = RACE_SECONDS,
) -> Verdict:
    """Put a store to the test. Errors of the way there are raised: they are no verdict."""
    if writers < 2 or rounds < 1:
        raise ValueError(f"a race needs 2 writers and 1 round, not {writers} and {rounds}")
    started, before = clock.boot(), store.requests.snapshot()
    scratch = Scratch(store, chance, clock)
    examination = _Examination(scratch, writers, Rounds(rounds, race_seconds))
    try:
        examination.run()
    finally:
        scratch.clear()
    after = store.requests.snapshot()
    return Verdict(
        store=store.url,
        endpoint=endpoint_of(store),
        problems=tuple(dict.fromkeys(examination.problems)),
        conditional_delete=examination.deleting.conditional,
        requests={kind: count - before[kind] for kind, count in after.items()},
        at=_time_of(store, clock),
        seconds=clock.boot() - started,
        writers=writers,
        rounds=examination.decided,
    )


def ensure_certified(
    store: Store, *, chance: Chance, clock: Clock, writers: int = WRITERS, rounds: int = ROUNDS
) -> Verdict:
    """The verdict that let this store pass: remembered (one GET), or of a certification now.

    Raises :class:`~dfq.errors.StoreNotSafe`, which is not remembered. A store without conditional
    delete is told so: from then on it refuses to be given an ETag to delete by.
    """
    verdict = remembered(store)
    if verdict is None:
        verdict = certify(store, chance=chance, clock=clock, writers=writers, rounds=rounds)
        if not verdict.ok:
            raise StoreNotSafe(_name(store), verdict.problems)
        remember(store, verdict)
    if store.conditional_delete and not verdict.conditional_delete:
        cast("Any", store).conditional_delete = False
    return verdict


def remembered(store: Store) -> Verdict | None:
    """The verdict kept in the store, if it is about what serves the store now; one GET.

    A bucket that was copied, or moved behind another server, brings a verdict about the old one.
    """
    try:
        there = store.read(CERTIFIED_KEY)
        verdict = None if there is None else Verdict.from_json(orjson.loads(there.body))
    except ValueError:
        # Damaged, too large or not ours: certifying again costs little.
        return None
    if verdict is None or not verdict.ok or verdict.checks < CHECKS_VERSION:
        return None
    return verdict if verdict.endpoint == endpoint_of(store) else None


def remember(store: Store, verdict: Verdict) -> None:
    """Keep a verdict in the store. If that fails, the next one certifies again."""
    with suppress(StoreBusy, QueueUnavailable):
        store.put(CERTIFIED_KEY, orjson.dumps(verdict.to_json(), option=orjson.OPT_INDENT_2))


def endpoint_of(store: Store) -> str:
    """The name of what serves a store."""
    endpoint = getattr(store, "endpoint", None)
    return endpoint if isinstance(endpoint, str) else store.url


class _Examination:
    """The checks in their order, and what came of them so far."""

    def __init__(self, scratch: Scratch, writers: int, rounds: Rounds) -> None:
        self.problems: list[str] = []
        self.deleting = Deleting(conditional=False)
        self.decided = {"create": 0, "replace": 0, "delete": 0}
        self._scratch = scratch
        self._writers = writers
        self._rounds = rounds
        self._to_delete: ToDelete | None = None

    def run(self) -> None:
        """What builds on something that is wrong is left out: it costs, and says nothing new."""
        steps: tuple[tuple[Callable[[Scratch], None], ...], ...] = (
            (check_create,),
            (check_replace,),
            (check_time, check_listing),
            # Long after the creates: one that a bad network repeats has arrived by now.
            (self._probe_delete, check_delete),
            (self._make_keys_to_delete,),
            (self._race_to_create, self._race_to_replace, self._race_to_delete),
        )
        for step in steps:
            for check in step:
                try:
                    check(self._scratch)
                except Wrong as wrong:
                    self.problems.append(str(wrong))
            if self.problems:
                return

    def _probe_delete(self, scratch: Scratch) -> None:
        self.deleting = probe_conditional_delete(scratch)

    def _make_keys_to_delete(self, scratch: Scratch) -> None:
        if self.deleting.conditional:
            self._to_delete = ToDelete(scratch, self._rounds)

    def _race_to_create(self, scratch: Scratch) -> None:
        self.decided["create"] = race_to_create(scratch, self._writers, self._rounds)

    def _race_to_replace(self, scratch: Scratch) -> None:
        self.decided["replace"] = race_to_replace(scratch, self._writers, self._rounds)

    def _race_to_delete(self, scratch: Scratch) -> None:
        if self._to_delete is not None:
            self.decided["delete"] = race_to_delete(
                scratch,
                self._writers,
                self._rounds,
                self._to_delete,
                tells_gone=self.deleting.tells_gone,
            )


def _name(store: Store) -> str:
    endpoint = endpoint_of(store)
    return store.url if endpoint == store.url else f"{store.url} at {endpoint}"


def _time_of(store: Store, clock: Clock) -> float:
    try:
        return store.now()
    except QueueUnavailable:
        return clock.wall()
