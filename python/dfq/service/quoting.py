"""How words and paths are written in a unit file.

systemd replaces %-specifiers in nearly all settings, splits lists and command lines at spaces,
and knows quotes and backslashes there, but not in settings that take one path.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Iterable

from dfq.errors import InvalidConfig

_PLAIN = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789%@_-+=:,./"
)  # fmt: skip


def word(text: str) -> str:
    """One word of a list or a command line."""
    escaped = text.replace("%", "%%")
    if text and set(text) <= _PLAIN:
        return escaped
    return f'"{"".join(map(_in_quotes, escaped))}"'


def unword(written: str) -> str:
    """The text that :func:`word` wrote."""
    if written.startswith('"'):
        written = _ESCAPED.sub(_unescaped, written[1:-1].encode()).decode(errors="replace")
    return written.replace("%%", "%")


def command_line(words: Iterable[str]) -> str:
    """A command line, nothing in which is taken for a variable."""
    program, *arguments = words
    # The colon has to be within the quotes: a word is quoted from its first character on.
    return " ".join([word(f":{program}"), *map(word, arguments)])


def path(text: str) -> str:
    """The one path of a setting that takes no list."""
    if not text.isprintable() or text != text.strip() or text.endswith("\\"):
        raise InvalidConfig(
            f"the path {text!r} can't be written into a unit file: it has control characters, "
            "or ends in a space or a backslash. Rename it"
        )
    return text.replace("%", "%%")


def pattern(text: str) -> str:
    """The same for a setting in which *, ? and [ mean something."""
    return path(glob.escape(text))


_ESCAPED = re.compile(rb'\\(?:x([0-9a-f]{2})|(["\\]))')


def _unescaped(found: re.Match[bytes]) -> bytes:
    return found[2] or bytes.fromhex(found[1].decode())


def _in_quotes(char: str) -> str:
    if char in '"\\':
        return f"\\{char}"
    if char.isprintable():
        return char
    return "".join(f"\\x{byte:02x}" for byte in char.encode())
