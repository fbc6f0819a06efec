"""Which queue a command means, and opening it.

QUEUE is the first argument of every command. It may be left out when -q, DFQ_QUEUE_URL or
dfq.toml names it, so a command that takes more arguments must tell its first one apart:
`push` by its looks (a payload never looks like a queue), the commands that take task ids
by the slash, colon or folder that an id can't have or be; what could be both is an id if a
queue is configured, and a queue if none is.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from dfq.errors import DfqError

if TYPE_CHECKING:
    from dfq.policy import Policy
    from dfq.queue import Queue

NO_QUEUE = (
    "no queue given: name it as the first argument, with -q QUEUE, "
    "in the variable DFQ_QUEUE_URL or as queue_url in dfq.toml"
)


class NoQueueThere(DfqError, LookupError):
    """There is no queue at this place; `dfq push` or `dfq init` makes one."""

    exit_code = 66


def configured_queue() -> str | None:
    """The queue that the environment or dfq.toml names."""
    from dfq.config import load_config

    return load_config().queue_url


def only_queue(argument: str | None, option: str | None) -> str:
    """The queue of a command that takes no other arguments."""
    if argument is not None and option is not None:
        raise click.UsageError("the queue is given twice: as an argument and with -q")
    url = argument or option or configured_queue()
    if not url:
        raise click.UsageError(NO_QUEUE)
    return url


def queue_and_rest(
    arguments: Sequence[str],
    option: str | None,
    looks_like_queue: Callable[[str], bool | None],
) -> tuple[str, list[str]]:
    """Split arguments into the queue and the others.

    ``looks_like_queue`` may answer None: it could be both.
    """
    rest = list(arguments)
    if option is not None:
        return option, rest
    looks = looks_like_queue(rest[0]) if rest else False
    if looks:
        return rest[0], rest[1:]
    configured = configured_queue()
    if configured is not None:
        return configured, rest
    # A single word where ids are expected is more likely an id whose queue was forgotten.
    if looks is None and len(rest) > 1:
        return rest[0], rest[1:]
    raise click.UsageError(NO_QUEUE)


def id_looks_like_queue(word: str) -> bool | None:
    """Whether a word where ids are expected is a queue."""
    if "/" in word or ":" in word or word.startswith((".", "~")):
        return True
    if os.path.isdir(os.path.join(word, "pending")):  # noqa: PTH112, PTH118 - pathlib costs 3 ms
        return True
    return None


def open_queue(url: str, *, create: bool = False, policy: Policy | None = None) -> Queue:
    """Open the queue; unless ``create``, a folder that is none is an error, not made one."""
    import dfq
    from dfq.engines.file_folder import is_queue, refuse_file

    folder = local_folder(url)
    if folder is not None and create:
        # At once: a worker would wait for the folder to come back.
        refuse_file(folder)
    elif folder is not None and not is_queue(folder):
        raise NoQueueThere(
            f"there is no queue at {url!r}; check the name, "
            "or make one with `dfq init` or by pushing into it"
        )
    return dfq.open(url, policy=policy)


def local_folder(url: str) -> str | None:
    """The folder a queue of the file engine lives in, None for the other engines."""
    from dfq.opening import split

    engine, rest = split(url)
    return rest if engine == "file" else None
