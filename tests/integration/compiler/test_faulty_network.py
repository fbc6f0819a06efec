"""An index in a bucket behind a network that drops, delays, cuts and repeats."""

from __future__ import annotations

import hashlib
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from dfq import Index
from dfq.ambient import SYSTEM_CLOCK
from dfq.compiler.passes import Bounds
from dfq.errors import QueueBusy, QueueUnavailable
from dfq.store import Exists, Lost
from dfq.stores.verdict import Verdict
from dfq.testing import SeededChance
from tests.indexes import COLUMNS, model_of, shards_of
from tests.models.index_model import written
from tests.patience import patience
from tests.servers.misfortune import Fate, Plan

SERVER = "ministack"
SHARES: dict[Fate, float] = {
    "lost": 0.02,
    "late": 0.02,
    "lost_answer": 0.03,
    "cut_head": 0.02,
    "cut_body": 0.04,
    "repeated": 0.03,
    "second_answer": 0.02,
    "slow_down": 0.01,
    "server_error": 0.01,
    "conflict": 0.02,
}
TRIES = 60
BOUNDS = Bounds(lock_seconds=3)


def through_bad_spells(do):
    """What a caller would do."""
    for _ in range(TRIES):
        try:
            return do()
        except (QueueUnavailable, QueueBusy):
            continue
    raise AssertionError("it never got through")


def certified(store) -> None:
    """Spare these tests the certification: the server passes it elsewhere."""
    from dfq.stores import certify

    verdict = Verdict(store.url, store.endpoint, (), True, {}, 0.0, 0.0, 8, {})
    certify.remember(store, verdict)


@pytest.mark.parametrize("seed", range(2))
def test_a_file_comes_whole_or_not_at_all(bad_network, tmp_path, seed):
    network = bad_network(SERVER, Plan(SeededChance(seed), SHARES | {"cut_body": 0.3}))
    content = hashlib.sha512(b"%d" % seed).digest() * 60_000
    source = tmp_path / "source"
    source.write_bytes(content)
    network.direct.create_from("large", str(source))
    whole = 0
    for number in range(12):
        path = tmp_path / str(number)
        try:
            found = network.through.fetch("large", str(path))
        except (QueueUnavailable, QueueBusy):
            assert not path.exists()
            continue
        assert found is not None
        assert (found.size, path.read_bytes() == content) == (len(content), True)
        whole += 1
    assert whole > 2


@pytest.mark.parametrize("seed", range(2))
def test_a_file_that_is_sent_arrives_whole_or_not_at_all(bad_network, tmp_path, seed):
    network = bad_network(SERVER, Plan(SeededChance(seed), SHARES))
    source = tmp_path / "source"
    content = hashlib.sha512(b"%d" % seed).digest() * 60_000
    source.write_bytes(content)
    for number in range(12):
        key = f"files/{number}"
        try:
            network.through.create_from(key, str(source))
        except Exists:
            # Something between repeated it, and the second one was told so.
            assert network.direct.fetch(key, str(tmp_path / f"{number}-twice")) is not None
        except (QueueUnavailable, QueueBusy, Lost):
            continue
        path = tmp_path / f"{number}"
        assert network.direct.fetch(key, str(path)) is not None
        assert path.read_bytes() == content


@pytest.mark.parametrize("seed", range(2))
def test_no_update_is_lost_and_none_comes_back(bad_network, seed):
    network = bad_network(SERVER, Plan(SeededChance(seed), SHARES))
    certified(network.direct)
    direct = Index.create("direct", COLUMNS, store=network.direct)
    handles = [
        through_bad_spells(lambda n=n: Index("bad", store=network.through, worker_id=str(n)))
        for n in range(3)
    ]
    for handle in handles:
        handle._site._certified = True
    bodies = []
    for number in range(24):
        rows = handles[number % 3].rows(
            [
                {
                    "domain": f"{number % 7}.example",
                    "city": str(number),
                    "updated_at": f"2026-11-01T00:00:{number:02d}Z",
                    "deleted_at": "2026-11-01" if number % 5 == 0 else "",
                }
            ]
        )
        bodies.append(written(rows))
        through_bad_spells(lambda n=number, r=rows: handles[n % 3].put_rows(r))
        if number % 8 == 7:
            with ThreadPoolExecutor(3) as pool:
                list(pool.map(quietly, handles))
    until = SYSTEM_CLOCK.boot() + patience(60)
    pause = threading.Event()
    # Locks whose holders were told nothing end by themselves.
    while direct.compile(bounds=BOUNDS).waiting or direct.plan().locked:
        assert SYSTEM_CLOCK.boot() < until
        pause.wait(0.1)
    assert shards_of(network.direct) == model_of(*bodies)
    assert direct.plan().waiting == {}


def quietly(handle: Index) -> None:
    try:
        handle.compile(bounds=BOUNDS)
    except (QueueUnavailable, QueueBusy):
        return
