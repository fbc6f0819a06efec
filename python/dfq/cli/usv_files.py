"""Files of tables: opened, put together, and what is said about them beside them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any

import click

from dfq.cli.usv_stream import BadFile, NoFile, usv_records

STDIO = "-"


@contextmanager
def opened(path: str) -> Iterator[IO[bytes]]:
    """A file, or stdin, to read from."""
    try:
        stream = click.open_file(path, "rb")
    except OSError as error:
        raise NoFile(f"{path} can't be read: {error.strerror}") from None
    with stream:
        yield stream


def size_of(stream: IO[bytes]) -> int | None:
    """The size of a regular file."""
    import stat

    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) and status.st_size else None


def put_together(path: str, pieces: Iterator[bytes], *, force: bool) -> int:
    """Write the pieces; the file appears whole or not at all. Returns how many bytes they are."""
    if path == STDIO:
        total = 0
        for piece in pieces:
            click.echo(piece, nl=False)
            total += len(piece)
        return total
    if not force and os.path.lexists(path):
        raise BadFile(f"{path} is there already; use another name, or --force to replace it")
    part = f"{path}.{os.getpid()}.part"
    try:
        with open(part, "xb") as file:  # noqa: PTH123 - pathlib is slow to import
            total = sum(file.write(piece) for piece in pieces)
        os.replace(part, path)  # noqa: PTH105
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(part)  # noqa: PTH108
        raise
    return total


def names_beside(path: str) -> list[str] | None:
    """What datapackage.json, in the file's folder or above it, calls the columns."""
    import orjson

    if path == STDIO:
        return None
    folder = os.path.dirname(os.path.abspath(path))  # noqa: PTH100, PTH120
    for place in (folder, os.path.dirname(folder)):  # noqa: PTH120
        try:
            with open(f"{place}/datapackage.json", "rb") as file:  # noqa: PTH123
                package: Any = orjson.loads(file.read())
        except (OSError, ValueError):
            continue
        try:
            resource = package["resources"][0]
            names = [field["name"] for field in resource["schema"]["fields"]]
            header = resource.get("dialect", {}).get("header", True)
        except (KeyError, IndexError, TypeError, AttributeError):
            continue
        if header is False and all(isinstance(name, str) for name in names):
            return names
    return None


def width_of(path: str) -> int | None:
    """How many fields the first record has that can be read."""
    with opened(path) as stream:
        for _, record in usv_records(stream, 16 << 20):
            if not isinstance(record, str):
                return len(record)
    return None
