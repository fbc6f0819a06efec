"""Benchmarks run on each filesystem, made fresh for the session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benches import bare
from benches.filesystems import GROUNDS, Ground


@pytest.fixture(scope="session", autouse=True)
def _built() -> None:
    """Nobody's first round waits for the compiler."""
    bare.binary()


@pytest.fixture(scope="session", params=list(GROUNDS))
def ground(request: pytest.FixtureRequest) -> Iterator[Ground]:
    with GROUNDS[request.param]() as made:
        yield made


@pytest.fixture(scope="session")
def disk() -> Iterator[Ground]:
    """Where a sync costs something."""
    with GROUNDS["ext4"]() as made:
        yield made
