"""The servers as fixtures: each is started once per session, when a test first asks for it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.servers import ENVIRONMENT, SETTINGS_OF_PEOPLE, Server, start
from tests.servers.misfortune import Plan
from tests.servers.proxy import Proxy, faulty_proxy

if TYPE_CHECKING:
    from dfq.store import Store
    from dfq.stores.s3 import S3Store

_PREFIXES = itertools.count()
#: A contended key of SeaweedFS may take longer than people would wait.
_PATIENT = {"timeout": 100}


@pytest.fixture(scope="session")
def running_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Server]]:
    """A server by its name."""
    started: dict[str, Server] = {}
    with ExitStack() as stack:

        def get(name: str) -> Server:
            if name not in started:
                folder = tmp_path_factory.mktemp(name)
                started[name] = stack.enter_context(start(name, folder))
            return started[name]

        yield get


@pytest.fixture
def aws_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """The credentials of the test servers, and none of this machine's own settings."""
    for name in SETTINGS_OF_PEOPLE:
        monkeypatch.delenv(name, raising=False)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def make_store(
    running_server: Callable[[str], Server], tmp_path: Path, aws_settings: None
) -> Iterator[Callable[[str], Store]]:
    """Make stores by name; those on one server have each a prefix of its own."""
    made: list[Store] = []

    def make(name: str) -> Store:
        store: Store
        if name == "local":
            from dfq.stores.local import LocalStore

            store = LocalStore(tmp_path / f"store-{len(made)}")
        elif name == "memory":
            from dfq.stores.memory import MemoryStore

            store = MemoryStore()
        else:
            from dfq.stores.s3 import S3Store

            prefix = f"conformance/{next(_PREFIXES)}"
            store = S3Store(
                running_server(name).url(prefix, **_PATIENT),
                keep_connections=32,
            )
        store.name = name  # type: ignore[attr-defined]
        made.append(store)
        return store

    yield make
    for store in made:
        store.close()


class BadNetwork(NamedTuple):
    """One prefix of one server, seen from both sides of a proxy."""

    proxy: Proxy
    #: The store that has the bad days.
    through: S3Store
    #: The same store without: for the truth.
    direct: S3Store


@pytest.fixture
def bad_network(
    running_server: Callable[[str], Server], aws_settings: None
) -> Iterator[Callable[[str, Plan], BadNetwork]]:
    """Put a faulty proxy in front of a server, by the server's name and the plan."""
    from dfq.stores.s3 import S3Store

    with ExitStack() as stack:

        def make(name: str, plan: Plan) -> BadNetwork:
            server = running_server(name)
            prefix = f"bad-network/{next(_PREFIXES)}"
            proxy = stack.enter_context(faulty_proxy(server, plan))
            through, direct = (
                stack.enter_context(
                    closing(S3Store(one.url(prefix, **_PATIENT), keep_connections=32))
                )
                for one in (proxy, server)
            )
            return BadNetwork(proxy, through, direct)

        yield make
