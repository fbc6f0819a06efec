"""From a URL or a path to a queue. The only place that knows the engines by name."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from dfq.ambient import SYSTEM_CHANCE, SYSTEM_CLOCK, Chance, Clock
from dfq.errors import InvalidURL
from dfq.policy import Policy, nearest

if TYPE_CHECKING:
    from dfq.queue import Queue

#: The engines of this version, by the scheme of their URLs.
ENGINES = ("file", "s3", "memory")
_LATER = ("postgres", "postgresql", "redis", "sqs", "http", "https")

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_MEMORY_NAME = re.compile(r"[A-Za-z0-9._-]{0,200}", re.ASCII)
_HOW = "Use a path, file:///path, s3://bucket/prefix or memory://name."


def open(
    url_or_path: str | os.PathLike[str],
    *,
    policy: Policy | None = None,
    clock: Clock = SYSTEM_CLOCK,
    chance: Chance = SYSTEM_CHANCE,
) -> Queue:
    """Open a queue: a path or ``file:///path`` is a folder, ``s3://bucket/prefix`` is in a bucket,
    ``memory://name`` is in this process.

    A folder or a prefix with nothing in it becomes a queue at the first push.
    """
    scheme, rest = split(url_or_path)
    if scheme == "memory":
        from dfq.engines.memory import MemoryQueue

        if not _MEMORY_NAME.fullmatch(rest):
            raise InvalidURL(
                f"memory://{rest[:80]} has no valid name; "
                "use letters, digits, '.', '_' and '-', as in memory://tests"
            )
        return MemoryQueue(rest, policy=policy, clock=clock, chance=chance)
    if scheme == "s3":
        from dfq.engines.s3.queue import S3Queue
        from dfq.stores.s3 import S3Store

        url = f"s3://{rest}"
        store = S3Store(url, clock=clock, chance=chance)
        try:
            return S3Queue(store, url=url, policy=policy, clock=clock, chance=chance)
        except BaseException:
            store.close()
            raise
    from dfq.engines.file import FileQueue

    return FileQueue(rest, policy=policy, clock=clock, chance=chance)


def split(url_or_path: str | os.PathLike[str]) -> tuple[str, str]:
    """The engine and its own part of the URL: the path of a folder, a bucket, or a name."""
    text = _text(url_or_path)
    if not text:
        raise InvalidURL(f"the queue's URL is empty. {_HOW}")
    match = None if isinstance(url_or_path, os.PathLike) else _SCHEME.fullmatch(text)
    if match is None:
        scheme, rest = "file", text
    else:
        scheme, rest = match[1].lower(), match[2]
        if scheme == "file":
            rest = _file_path(rest)
    if "\0" in rest:
        raise InvalidURL(f"{text!r} contains a NUL, which no path can hold. {_HOW}")
    if scheme not in ENGINES:
        raise InvalidURL(_no_engine(text, scheme))
    if scheme == "file":
        _refuse_odd_bytes(rest)
    return scheme, rest


def _text(url_or_path: object) -> str:
    if isinstance(url_or_path, os.PathLike):
        url_or_path = os.fspath(url_or_path)
    if not isinstance(url_or_path, str):
        kind = type(url_or_path).__name__
        raise InvalidURL(f"a queue is opened by a str or a Path, not {kind}. {_HOW}")
    return url_or_path


def _file_path(rest: str) -> str:
    host, slash, path = rest.partition("/")
    if host not in ("", "localhost"):
        raise InvalidURL(
            f"file://{rest} names the host {host!r}, but a folder is always on this one. "
            f"An absolute path has three slashes: file:///{rest}"
        )
    if "?" in path or "#" in path:
        raise InvalidURL(
            f"file://{rest} has a '?' or '#', which mean something else in a URL. "
            "Write them as %3F and %23, or give the plain path."
        )
    if re.search(r"%(?![0-9A-Fa-f]{2})", path):
        raise InvalidURL(
            f"file://{rest} has a '%' that is not followed by two hex digits. "
            "Write it as %25, or give the plain path."
        )
    if not path.strip("/"):
        raise InvalidURL(f"file://{rest} names no folder. {_HOW}")
    from urllib.parse import unquote_to_bytes

    return os.fsdecode(unquote_to_bytes(slash + path))


def _refuse_odd_bytes(path: str) -> None:
    # A path is bytes, but it goes into JSON and logs, and those are text. The folder we are in
    # counts too: a relative path is made absolute.
    try:
        os.path.abspath(path).encode()  # noqa: PTH100 - pathlib is slow to import
    except UnicodeEncodeError:
        shown = os.fsencode(path).decode(errors="backslashreplace")
        raise InvalidURL(
            f"the path of the queue '{shown}' is not UTF-8 all the way; rename the folder "
            "whose name is not, or put the queue elsewhere"
        ) from None


def _no_engine(text: str, scheme: str) -> str:
    from dfq.stores.s3_address import without_secrets

    text = without_secrets(text)
    there = f"This version has {', '.join(ENGINES[:-1])} and {ENGINES[-1]}. {_HOW}"
    if scheme in _LATER:
        return f"{text}: the {scheme} engine is not part of this version of dfq. {there}"
    return f"{text}: no engine is called {scheme!r}; {nearest(scheme, [*ENGINES, *_LATER])} {there}"
