"""Payloads given on the command line: JSON values, or name=text and name:=JSON pairs."""

from __future__ import annotations

import re
from collections.abc import Sequence

import click

from dfq.errors import InvalidTask
from dfq.payload import JSON

_PAIR = re.compile(r"([A-Za-z_][A-Za-z0-9_.-]*)(:?=)(.*)", re.DOTALL)
_NUMBER_OR_WORD = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?|true|false|null")
STDIN = "-"


def push_argument_is_queue(word: str) -> bool:
    """Whether an argument of `dfq push` is a queue: it is none if it looks like a payload.

    A folder with such a name is still reachable, as ``./1`` or ``-q 1``.
    """
    return not (
        word == STDIN
        or word.lstrip().startswith(("{", "[", '"'))
        or _NUMBER_OR_WORD.fullmatch(word)
        or _PAIR.fullmatch(word)
    )


def payloads(arguments: Sequence[str]) -> list[JSON]:
    """The payloads the arguments give: one per JSON value, one for all pairs together."""
    pairs = [match for word in arguments if (match := _pair(word))]
    if not pairs:
        return [_value(word, "the payload") for word in arguments]
    if len(pairs) < len(arguments):
        raise click.UsageError("give JSON values or name=value pairs, not both")
    payload: dict[str, JSON] = {}
    for match in pairs:
        name, sign, text = match.groups()
        if name in payload:
            raise click.UsageError(f"{name!r} is given twice")
        payload[name] = text if sign == "=" else _value(text, f"the value of {name!r}")
    return [payload]


def _pair(word: str) -> re.Match[str] | None:
    return None if word.lstrip().startswith(("{", "[", '"')) else _PAIR.fullmatch(word)


def _value(text: str, what: str) -> JSON:
    import orjson

    try:
        return orjson.loads(text)
    except ValueError as error:
        raise InvalidTask(
            f"{what} is not JSON: {error}: {text[:60]!r}. "
            """Quote it for the shell, as in '{"url": "https://example.com"}', """
            "or write name=text and name:=JSON."
        ) from None
