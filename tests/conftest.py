"""Settings that every test shares."""

from __future__ import annotations

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
