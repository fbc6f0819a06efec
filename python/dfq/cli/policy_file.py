"""Writes queue.json: whole or not at all, and never over somebody else's by accident."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from dfq.errors import DfqError, InvalidPolicy, LayoutTooNew, QueueUnavailable
from dfq.payload import JSON
from dfq.policy import LAYOUT_VERSION, Policy

FILE_NAME = "queue.json"
#: Keys of queue.json that say how the folder is laid out; the others are the policy.
LAYOUT_KEYS = ("dfq", "layout")


class QueueExists(DfqError, FileExistsError):
    """The queue has a policy already; `dfq init --update` changes it."""

    exit_code = 73


def write_policy(folder: Path, given: dict[str, Any], layout: str | None, update: bool) -> Policy:
    """Make the folder's queue.json from the settings given; the policy that is now in force."""
    path = folder / FILE_NAME
    before = _read(path)
    if before is not None and not update:
        raise QueueExists(f"{path} is there already; change it with --update, or edit it")
    content = before or {}
    if layout is not None and content and content.get("layout", "sharded") != layout:
        raise InvalidPolicy(
            f"{path}: the layout of a queue can't be changed; make another queue and push into it"
        )
    policy = Policy.from_json(
        {
            **{key: value for key, value in content.items() if key not in LAYOUT_KEYS},
            **_merged(content, given),
        }
    )
    _write(
        path,
        {
            "dfq": LAYOUT_VERSION,
            "layout": layout or content.get("layout", "sharded"),
            **policy.to_json(),
        },
        replace=before is not None,
    )
    return policy


def _merged(content: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """The settings given, with what is in force of the retry policy below them."""
    settings = dict(given)
    before = content.get("retry")
    if "retry" in settings and isinstance(before, dict):
        settings["retry"] = {**before, **settings["retry"]}
    if "lease_seconds" in settings and "heartbeat_seconds" not in settings:
        # A beat that suited the old lease may not suit the new one.
        settings["heartbeat_seconds"] = min(60.0, settings["lease_seconds"] / 3)
    return settings


def _read(path: Path) -> dict[str, Any] | None:
    import orjson

    try:
        content: JSON = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise InvalidPolicy(f"{path} is not JSON ({error}); mend it or delete it") from None
    except OSError as error:
        raise QueueUnavailable(f"{path} can't be read: {error.strerror}") from None
    if not isinstance(content, dict):
        raise InvalidPolicy(f"{path} must be a JSON object; mend it or delete it")
    version = content.get("dfq", LAYOUT_VERSION)
    if isinstance(version, int) and version > LAYOUT_VERSION:
        raise LayoutTooNew(
            f"{path} has layout {version}; this dfq knows {LAYOUT_VERSION} at most. Upgrade dfq."
        )
    return content


def _write(path: Path, content: dict[str, Any], *, replace: bool) -> None:
    """Synced before it gets its name: a power cut leaves the file as it was, or whole."""
    import orjson

    encoded = orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    # In tmp/ the sweeper finds what a crash leaves behind.
    temporary = path.parent / "tmp" / f"{FILE_NAME}.{os.getpid()}"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary.parent.mkdir(mode=0o700, exist_ok=True)
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(encoded)
                file.flush()
                os.fsync(file.fileno())
            if replace:
                temporary.replace(path)
            else:
                # Unlike a rename, a link fails if somebody else was faster.
                path.hardlink_to(temporary)
        finally:
            temporary.unlink(missing_ok=True)
        _sync_folder(path.parent)
    except FileExistsError:
        raise QueueExists(f"{path} was made by somebody else just now; look at it") from None
    except OSError as error:
        raise QueueUnavailable(f"{path} can't be written: {error.strerror}") from None


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
