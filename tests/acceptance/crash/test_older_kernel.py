"""Without openat2 a path is walked step by step; no step may follow a symlink either."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import pytest

from dfq.engines.file import FileQueue

pytestmark = [pytest.mark.crash]

CANCEL = """
import os, sys
from dfq import DfqError
from dfq.engines.file import FileQueue
try:
    FileQueue(sys.argv[1]).cancel("bait", "through a symlink")
except DfqError as error:
    print(type(error).__name__)
"""


def test_a_symlink_in_place_of_a_shard_is_not_followed_where_openat2_is_missing(
    root: Path, folder: Path, strace
) -> None:
    FileQueue(root).push(1, id="a")
    outside = folder / "outside" / "bait"
    outside.mkdir(parents=True)
    (outside / "task.json").write_text('{"payload": "secret"}')
    (root / "pending" / hashlib.sha256(b"bait").hexdigest()[:2]).symlink_to(outside.parent)
    command = [sys.executable, "-c", CANCEL, str(root)]
    traced = strace.run_all(command, "openat2:error=ENOSYS")
    assert traced.returncode == 0, traced.stderr
    assert any(call.injected for call in traced.calls)
    assert traced.stdout.strip() in ("TaskNotFound", "WrongState", "QueueUnavailable")
    assert [path.name for path in outside.iterdir()] == ["task.json"]
