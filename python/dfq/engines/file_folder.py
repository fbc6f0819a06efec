"""Whether a folder is a queue, without touching it: looking must not make one."""

from __future__ import annotations

import os

from dfq.errors import QueueUnavailable


def is_made(path: str) -> bool:
    """Whether a push or a worker has made the folder a queue already."""
    return _is_there(f"{path}/pending")


def is_queue(path: str) -> bool:
    """Whether the folder is a queue, or has at least the policy of one to be made."""
    return is_made(path) or _is_there(f"{path}/queue.json")


def refuse_file(path: str) -> None:
    """Say so if a file stands where the folder, or one above it, should be."""
    path = os.path.abspath(path)
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    if os.path.exists(path) and not os.path.isdir(path):
        raise QueueUnavailable(
            f"{path} is a file, and a queue is a folder; name another path, or move the file away"
        )


def _is_there(path: str) -> bool:
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        # We may not look, or the disk fails: opening it tells which.
        return True
    return True
