"""Real servers are put to the test: those that are atomic pass, one that is not is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dfq.ambient import SYSTEM_CHANCE, SYSTEM_CLOCK
from dfq.errors import QueueUnavailable, StoreNotSafe, StoreRefused
from dfq.stores.certify import certify, ensure_certified, remembered
from dfq.stores.s3 import S3Store
from tests.servers import Server, held_moto, start
from tests.servers.commands import COMMANDS
from tests.servers.scripted import Reply, error, scripted

pytestmark = pytest.mark.usefixtures("aws_settings")

AMBIENT = {"chance": SYSTEM_CHANCE, "clock": SYSTEM_CLOCK}


@pytest.fixture(params=["ministack", "seaweedfs"])
def store(
    request: pytest.FixtureRequest, running_server: Callable[[str], Server]
) -> Iterator[S3Store]:
    # A contended key of SeaweedFS may take longer than people would wait.
    url = running_server(request.param).url("certified", timeout=60)
    with closing(S3Store(url)) as store:
        store.delete("certified.json")
        yield store


def test_a_server_that_is_atomic_passes_and_is_remembered_by_its_endpoint(store: S3Store):
    verdict = ensure_certified(store, **AMBIENT)
    assert (verdict.problems, verdict.conditional_delete) == ((), True)
    assert verdict.endpoint == store.endpoint
    assert min(verdict.rounds.values()) >= 3
    assert [entry.key for entry in store.list("").entries] == ["certified.json"]
    before = store.requests.snapshot()
    assert ensure_certified(store, **AMBIENT) == verdict
    after = store.requests.snapshot()
    assert sum(after.values()) - sum(before.values()) == 1


def test_a_server_that_checks_and_then_acts_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(COMMANDS, "held-moto", held_moto.command)
    with start("held-moto", tmp_path) as server, closing(S3Store(server.url("q"))) as store:
        with pytest.raises(StoreNotSafe, match="writers created the same key; exactly one may"):
            ensure_certified(store, **AMBIENT)
        assert remembered(store) is None
        assert store.list("").entries == ()


def test_a_server_that_deletes_whatever_the_condition_passes_without(
    running_server: Callable[[str], Server], monkeypatch: pytest.MonkeyPatch
):
    with closing(S3Store(running_server("ministack").url("unconditional"))) as store:
        send = store._requests.send

        def without_condition(kind, method, key, **options):
            if kind == "delete" and method == "DELETE":
                options.pop("headers", None)
            return send(kind, method, key, **options)

        monkeypatch.setattr(store._requests, "send", without_condition)
        verdict = ensure_certified(store, **AMBIENT)
        assert (verdict.problems, verdict.conditional_delete) == ((), False)
        with pytest.raises(StoreRefused, match="no conditional delete"):
            store.delete("key", "0" * 32)


def test_a_server_that_is_away_is_no_verdict(running_server: Callable[[str], Server]):
    url = "s3://dfq-tests/q?endpoint=http://127.0.0.1:9&addressing=path"
    with closing(S3Store(url)) as store, pytest.raises(QueueUnavailable, match="reached"):
        ensure_certified(store, **AMBIENT)


def test_a_server_that_refuses_conditions_is_refused_with_what_it_said():
    replies = (
        error(501, "NotImplemented", "no conditional requests here"),
        Reply(headers={"ETag": '"1"'}),
        Reply(status=204),
    )
    with scripted(*replies) as server, closing(S3Store(server.url())) as store:
        verdict = certify(store, **AMBIENT)
    (problem,) = verdict.problems
    assert problem.startswith("create: with If-None-Match nothing is stored")
    assert "no conditional requests here" in problem
