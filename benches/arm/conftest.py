"""What the tree does not have (cargo, mounts) is not asked for."""

from __future__ import annotations

import pytest

from benches.filesystems import Ground


@pytest.fixture(scope="session", autouse=True)
def _built() -> None:
    """The bare loop stays out of it: nothing is compiled here."""


@pytest.fixture(scope="session")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    """The tree's /tmp is a tmpfs."""
    return Ground("tmpfs", tmp_path_factory.mktemp("ground"), "the tmpfs of the arm64 tree")
