"""What commands print: results on stdout, messages on stderr, nothing that steers a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

from dfq.payload import JSON

if TYPE_CHECKING:
    from dfq.errors import DfqError


def printable(text: str) -> str:
    """``text`` with control and invisible characters written out, as in ``\\x1b``."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def line(text: str = "") -> None:
    """Print one line of a result."""
    click.echo(printable(text))


def styled(text: str, **style: str | bool) -> str:
    """``text`` made printable, in colour if stdout is a terminal that wants it."""
    import os

    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return printable(text)
    return click.style(printable(text), **style)  # type: ignore[arg-type]


def json_line(value: JSON) -> None:
    """Print one JSON document on a line of its own."""
    import orjson

    try:
        encoded = orjson.dumps(value).decode()
    except TypeError:
        # A path that is not UTF-8; the other encoder writes its odd bytes as escapes.
        import json

        encoded = json.dumps(value)
    # As bytes: JSON is UTF-8, whatever the terminal's own encoding is.
    click.echo((_escaped(encoded) if sys.stdout.isatty() else encoded).encode())


def pretty_json(value: JSON) -> str:
    """JSON for people: indented, and printable."""
    import orjson

    encoded = orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
    return "\n".join(_escaped(part) for part in encoded.split("\n"))


def _escaped(encoded: str) -> str:
    # JSON escapes C0 controls; C1 controls and text direction marks steer terminals as well.
    if encoded.isprintable():
        return encoded
    return "".join(char if char.isprintable() else _json_escape(char) for char in encoded)


def _json_escape(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def complain(message: str) -> None:
    """Print an error as one line on stderr."""
    text = " ".join(message.split()) if "\n" in message else message
    click.echo(f"dfq: error: {printable(text)}", err=True)


def explain(error: DfqError) -> None:
    """Print an error that dfq raised; one without a message is told by its class."""
    from dfq.errors import HandlerError

    message = str(error) or " ".join((type(error).__doc__ or type(error).__name__).split())
    if not isinstance(error, HandlerError):
        complain(message)
        return
    # It may quote the user's own source, with a caret below: that needs its lines.
    first, *rest = message.splitlines()
    complain(first)
    for text in rest:
        click.echo(printable(text.replace("\t", " ")), err=True)


def note(message: str, *, quiet: bool = False) -> None:
    """Print a message for people on stderr."""
    if not quiet:
        click.echo(printable(message), err=True)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows in columns; nothing at all if there are none."""
    cells = [[printable(cell) for cell in row] for row in rows]
    if not cells:
        return
    widths = [
        max(len(name), *(len(row[column]) for row in cells)) for column, name in enumerate(header)
    ]
    click.echo(styled(_aligned(header, widths), bold=True))
    for row in cells:
        click.echo(_aligned(row, widths))


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def duration(seconds: float) -> str:
    """A length of time, short: ``45s``, ``12m``, ``3h``, ``8d``."""
    seconds = max(seconds, 0.0)
    for unit, size, limit in (("s", 1, 120), ("m", 60, 120 * 60), ("h", 3600, 48 * 3600)):
        if seconds < limit:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds / 86_400:.0f}d"


def moment(timestamp: float, now: float) -> str:
    """A point in time for people: local time, and how far from now."""
    from datetime import UTC, datetime

    try:
        local = datetime.fromtimestamp(timestamp, UTC).astimezone().isoformat(" ", "seconds")
    except (OverflowError, ValueError, OSError):
        return f"{timestamp:g} seconds since 1970"
    if timestamp > now:
        return f"{local} (in {duration(timestamp - now)})"
    return f"{local} ({duration(now - timestamp)} ago)"


def counted(number: int, noun: str) -> str:
    """``1 task``, ``2,000 tasks``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
