"""Many threads, one server, and a network that drops, delays, cuts and repeats.

The rule under test is the one that every engine on a store lives by: a write without an answer, or
one that was beaten, is settled by reading the key and comparing the nonce in its body.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, TypeVar

from dfq.errors import QueueUnavailable, StoreBusy, StoreRefused, StoreUnsure
from dfq.store import Lost, Object
from dfq.stores.s3 import S3Store
from dfq.testing import SeededChance
from tests.servers.fixtures import BadNetwork
from tests.servers.misfortune import Fate, Plan

T = TypeVar("T")
R = TypeVar("R")
Outcome = Literal["acked", "lost", "unsure"]

SERVER = "seaweedfs"
#: So that there is always a last one.
START = b'["start"]'
THREADS = 8
#: More tries than any run of bad luck takes.
TRIES = 60

SHARES: dict[Fate, float] = {
    "lost": 0.02,
    "late": 0.03,
    "lost_answer": 0.02,
    "cut_head": 0.02,
    "cut_body": 0.02,
    "delayed": 0.02,
    "repeated": 0.03,
    "slow_down": 0.01,
    "server_error": 0.01,
    "conflict": 0.02,
}


def plan(seed: int, **more: float) -> Plan:
    # Not very late: some are to arrive before they are missed.
    return Plan(SeededChance(seed), SHARES | more, max_later_requests=20)


def in_threads(work: Callable[[T], R], items: Iterable[T]) -> list[R]:
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(work, items))


def look(store: S3Store, key: str) -> Object | None:
    """Read a key, however often it takes."""
    for _ in range(TRIES):
        try:
            return store.read(key)
        except StoreRefused:
            raise
        except (QueueUnavailable, StoreBusy):
            continue
    raise AssertionError(f"{key} could not be read in {TRIES} tries")


def nonces_of(there: Object | None) -> list[str]:
    """All who wrote, the last one last: no body comes twice, and each tells the whole story."""
    assert there is not None
    return json.loads(there.body)


def write(store: S3Store, key: str, before: Object, nonce: str) -> Outcome:
    """Add a nonce to the list under a key; of what is read again only the last is compared."""
    body = json.dumps([*nonces_of(before), nonce]).encode()
    beaten: Outcome = "lost"
    for _ in range(TRIES):
        try:
            store.replace(key, body, before.etag)
            return "acked"
        except StoreUnsure:
            beaten = "unsure"
        except Lost:
            pass
        except StoreBusy:
            continue
        there = look(store, key)
        if nonces_of(there)[-1] == nonce:
            return "acked"
        if there.etag != before.etag:
            return beaten
        # The first may still be on its way: whichever of the two arrives is the only one.
    raise AssertionError(f"{key} could not be written in {TRIES} tries")


def create(store: S3Store, key: str, nonce: str) -> str:
    """Create a key unless somebody else does; whose it is."""
    for _ in range(TRIES):
        try:
            store.create(key, nonce.encode())
            return nonce
        except (Lost, StoreUnsure, StoreBusy):
            there = look(store, key)
            if there is not None:
                return there.body.decode()
    raise AssertionError(f"{key} could not be created in {TRIES} tries")


def check_that_it_was_bad(network: BadNetwork) -> None:
    """Each fate came, and of the writes that came late or again some were refused."""
    network.proxy.deliver_all()
    counts, later = network.proxy.counts, network.proxy.later_answers
    assert network.proxy.plan is not None
    assert not [fate for fate in network.proxy.plan.shares if not counts.get(fate)], counts
    assert later.get("PUT 412"), later
    assert "broken" not in counts


def test_every_acknowledged_update_is_there_once(bad_network):
    # Not too few counters: who meets another at one key of SeaweedFS waits for seconds.
    counters = [f"counters/{number}" for number in range(64)]
    network = bad_network(SERVER, plan(seed=1))
    for key in counters:
        network.direct.create(key, START)

    def update(number: int) -> dict[str, Outcome]:
        key = counters[SeededChance(number).bits(6)]
        outcomes: dict[str, Outcome] = {}
        for attempt in range(TRIES):
            before = look(network.through, key)
            nonce = f"{number}.{attempt}"
            outcomes[nonce] = write(network.through, key, before, nonce)
            if outcomes[nonce] != "lost":
                return outcomes
        raise AssertionError(f"update {number} was beaten {TRIES} times")

    outcomes: dict[str, Outcome] = {}
    for some in in_threads(update, range(2500)):
        outcomes.update(some)
    check_that_it_was_bad(network)
    assert network.proxy.later_answers.get("PUT 200"), "no late update was carried out"
    there = Counter(nonce for key in counters for nonce in nonces_of(network.direct.read(key)))
    by_outcome = {
        outcome: [there[nonce] for nonce in outcomes if outcomes[nonce] == outcome]
        for outcome in ("acked", "lost", "unsure")
    }
    assert set(by_outcome["acked"]) == {1}
    assert set(by_outcome["lost"]) <= {0}
    assert set(by_outcome["unsure"]) <= {0, 1}
    assert set(there) - set(outcomes) == {"start"}
    assert len(by_outcome["acked"]) > len(by_outcome["unsure"])


def test_what_one_holder_writes_is_there_once_and_in_order(bad_network):
    network = bad_network(SERVER, plan(seed=2, second_answer=0.03))
    nonces = [str(number) for number in range(50)]

    def hold(holder: int) -> set[Outcome]:
        key = f"held/{holder}"
        network.direct.create(key, START)
        return {write(network.through, key, look(network.through, key), nonce) for nonce in nonces}

    holders = range(40)
    assert in_threads(hold, holders) == [{"acked"}] * len(holders)
    check_that_it_was_bad(network)
    for holder in holders:
        assert nonces_of(network.direct.read(f"held/{holder}")) == ["start", *nonces]


def test_all_agree_on_who_created_a_key(bad_network):
    network = bad_network(SERVER, plan(seed=3, second_answer=0.03))
    racers, keys = 3, 400
    owners = in_threads(
        lambda number: create(network.through, f"race/{number // racers}", f"by {number}"),
        range(racers * keys),
    )
    check_that_it_was_bad(network)
    for key in range(keys):
        said = owners[racers * key : racers * (key + 1)]
        assert set(said) == {network.direct.read(f"race/{key}").body.decode()}
