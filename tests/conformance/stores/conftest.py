"""The stores under test. A new store is one more line here, not one more test file."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dfq.store import Store
from tests.chosen import chosen

#: Where of several writers exactly one wins. moto is not among them: it checks, then acts.
ATOMIC = ("local", "memory", "ministack", "seaweedfs")
ALL = (*ATOMIC, "moto")


@pytest.fixture(params=chosen(ALL))
def store(request: pytest.FixtureRequest, make_store: Callable[[str], Store]) -> Store:
    return make_store(request.param)


@pytest.fixture(params=chosen(ATOMIC))
def atomic_store(request: pytest.FixtureRequest, make_store: Callable[[str], Store]) -> Store:
    return make_store(request.param)
