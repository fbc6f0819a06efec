"""Settings that every test shares."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# The same examples on every run: a red test is red for the next person too.
settings.register_profile(
    "repeatable",
    derandomize=True,
    database=None,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("repeatable")

pytest_plugins = ["tests.servers.fixtures"]


@pytest.fixture(autouse=True)
def _log_as_before() -> Iterator[None]:
    """A worker in the test's own process sets up dfq's log: the next test must not inherit that."""
    logger = logging.getLogger("dfq")
    handlers, level, propagate = logger.handlers[:], logger.level, logger.propagate
    yield
    logger.handlers[:], logger.propagate = handlers, propagate
    logger.setLevel(level)
