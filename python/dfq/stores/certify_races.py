"""Writers that race: whatever the store does, exactly one may win.

All writers of a race know the same state of the key and are let go at once. What each was told is
compared with the body that is there afterwards, which shows a win that was taken back as well.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from dfq.errors import QueueUnavailable, StoreBusy, StoreRefused
from dfq.stores.certify_scratch import Outcome, Scratch, Told, Wrong

Write = Callable[[], str | bool]

#: However long rounds take, so many are run.
_FEWEST_ROUNDS: Final = 3


class Rounds(NamedTuple):
    """How long a race goes on: so many rounds, or fewer if they take longer than so many seconds.

    On a contended key some stores wait for seconds, which is contention enough.
    """

    most: int
    seconds: float


def race_to_create(scratch: Scratch, writers: int, rounds: Rounds) -> int:
    """Many create the same key."""
    store = scratch.store

    def one_round(number: int) -> bool:
        key = scratch.key(f"create-{number}")
        bodies = [scratch.body() for _ in range(writers)]
        told = _race(scratch, [_call(store.create, key, body) for body in bodies])
        there = scratch.body_of(key)
        return _is_decided("create", "created the same key", told, bodies, there)

    return _repeat(scratch, rounds, one_round)


def race_to_replace(scratch: Scratch, writers: int, rounds: Rounds) -> int:
    """Many replace the same version; the winner's is what the next round is about."""
    store = scratch.store
    key = scratch.key("replace-0")
    _, etag = scratch.make(key)

    def one_round(number: int) -> bool:
        nonlocal key, etag
        bodies = [scratch.body() for _ in range(writers)]
        told = _race(scratch, [_call(store.replace, key, body, etag) for body in bodies])
        there = scratch.read(key)
        if there is None:
            raise Wrong("replace: a key was gone after writers had raced to replace it")
        if _is_decided(*_REPLACED, told, bodies, there.body):
            etag = there.etag
            return True
        # What is still on its way could win the next round: that one gets another key.
        key = scratch.key(f"replace-{number + 1}")
        _, etag = scratch.make(key)
        return False

    return _repeat(scratch, rounds, one_round)


class ToDelete:
    """Keys for the races that end in deletes, made long before.

    A bad network may repeat a create after its key was deleted, and bring it back. So the creates
    come before all races, and the version that is raced for is a later one. What came back is
    told by its body.
    """

    def __init__(self, scratch: Scratch, rounds: Rounds) -> None:
        self._scratch = scratch
        self._made: dict[int, str] = {}
        for number in range(rounds.most):
            self._made[number] = scratch.make(self.key(number))[1]

    def key(self, number: int) -> str:
        """The key of a round."""
        return self._scratch.key(f"delete-{number}")

    def version(self, number: int) -> tuple[bytes, str]:
        """Body and ETag of the version that a round is about."""
        key = self.key(number)
        return self._scratch.renew(key, self._made.get(number) or self._scratch.make(key)[1])


def race_to_delete(
    scratch: Scratch, writers: int, rounds: Rounds, keys: ToDelete, *, tells_gone: bool
) -> int:
    """Half of the writers replace a version, the others delete it."""
    store = scratch.store

    def one_round(number: int) -> bool:
        key = keys.key(number)
        body, etag = keys.version(number)
        bodies = [scratch.body() for _ in range((writers + 1) // 2)]
        writes: list[Write] = [_call(store.replace, key, body, etag) for body in bodies]
        writes += [_call(store.delete, key, etag) for _ in range(writers // 2)]
        told = _race(scratch, writes)
        there = scratch.body_of(key)
        return _is_deletion_decided(
            told[: len(bodies)],
            told[len(bodies) :],
            bodies,
            there if there in (body, *bodies) else None,
            tells_gone=tells_gone,
        )

    return _repeat(scratch, rounds, one_round)


_REPLACED = ("replace", "replaced the same version")


def _call(write: Callable[..., str | bool], *arguments: object) -> Write:
    return lambda: write(*arguments)


def _repeat(scratch: Scratch, rounds: Rounds, one_round: Callable[[int], bool]) -> int:
    """How many rounds were decided. One in which all answers were lost proves nothing."""
    decided = 0
    deadline = scratch.clock.boot() + rounds.seconds
    for number in range(2 * rounds.most + 8):
        decided += one_round(number)
        late = decided >= _FEWEST_ROUNDS and scratch.clock.boot() >= deadline
        if decided == rounds.most or late:
            return decided
    raise QueueUnavailable(
        f"{scratch.store.url} can't be certified: {decided} of {rounds.most} races were decided, "
        "as answers did not come; check the network and the store, then try again"
    )


def _race(scratch: Scratch, writes: Sequence[Write]) -> list[Told]:
    """Let all go at once; what each was told."""
    gate = threading.Barrier(len(writes))
    outcomes: list[Outcome | BaseException] = [Outcome("doubtful")] * len(writes)

    def run(writer: int) -> None:
        try:
            gate.wait()
            outcomes[writer] = scratch.attempt(writes[writer])
        except StoreRefused as error:
            outcomes[writer] = error
        except (StoreBusy, QueueUnavailable):
            # Never told anything: what is there afterwards will say.
            return
        except BaseException as error:
            outcomes[writer] = error

    threads = [
        threading.Thread(target=run, args=(writer,), name=f"dfq-certify-{writer}", daemon=True)
        for writer in range(len(writes))
    ]
    try:
        for thread in threads:
            thread.start()
    except RuntimeError as error:
        # No more threads to be had: those that wait must not wait for ever.
        gate.abort()
        raise QueueUnavailable(
            f"{scratch.store.url} can't be certified: {len(writes)} writers are to race, but "
            f"{error}; end other programs on this machine, or raise its limits"
        ) from None
    for thread in threads:
        thread.join()
    told: list[Told] = []
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
        told.append(outcome.told)
    return told


def _is_decided(
    check: str, did: str, told: list[Told], bodies: list[bytes], there: bytes | None
) -> bool:
    """Whether somebody won; raises if the store let more or fewer win than one."""
    winners = [writer for writer, what in enumerate(told) if what == "won"]
    holder = bodies.index(there) if there in bodies else None
    if len(winners) > 1:
        raise Wrong(f"{check}: {len(winners)} of {len(told)} writers {did}; exactly one may")
    if winners and holder != winners[0]:
        raise Wrong(
            f"{check}: a writer was told that it {did}, but the body there is not its own; "
            "its update was lost"
        )
    if holder is not None:
        if told[holder] == "lost":
            raise Wrong(f"{check}: a writer was told that it lost, but the body there is its own")
        return True
    if "doubtful" in told:
        return False
    raise Wrong(f"{check}: none of {len(told)} writers {did}; exactly one must")


def _is_deletion_decided(
    replacers: list[Told],
    deleters: list[Told],
    bodies: list[bytes],
    there: bytes | None,
    *,
    tells_gone: bool,
) -> bool:
    deleted = deleters.count("won")
    if deleted and "won" in replacers:
        raise Wrong(
            f"delete: one version was replaced by {replacers.count('won')} writers and deleted by "
            f"{deleted}; exactly one may"
        )
    if deleted > 1 and tells_gone:
        raise Wrong(
            f"delete: {deleted} of {len(deleters)} writers deleted the same version; "
            "exactly one may"
        )
    if there is None:
        if "won" in replacers:
            raise Wrong(
                "delete: a writer was told that it replaced a version, but the key is gone; "
                "a delete that named the older version took it"
            )
        if not deleted and "doubtful" not in deleters:
            raise Wrong("delete: a key is gone, but no writer was told that it deleted it")
        return True
    if deleted:
        raise Wrong("delete: a writer was told that it deleted a version, but the key is there")
    return _is_decided(*_REPLACED, replacers, bodies, there)
