"""Logs: readable on a terminal, JSON lines for machines; a task's lines always name it."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import MutableMapping
from datetime import UTC, datetime
from typing import Any, TextIO

import orjson

from dfq.lease import Lease

LOGGER = logging.getLogger("dfq")

_COLOURS = {"WARNING": "33", "ERROR": "31", "CRITICAL": "31", "DEBUG": "2"}


class TaskLogger(logging.LoggerAdapter[logging.Logger]):
    """Adds the task, the attempt, the fence and the correlation id to every line."""

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        """Put what is known about the task beside the message."""
        kwargs["extra"] = {**(kwargs.get("extra") or {}), "dfq_task": self.extra}
        return msg, kwargs


def task_logger(lease: Lease) -> TaskLogger:
    """A logger for lines about one delivery of a task."""
    return TaskLogger(
        LOGGER,
        {
            "task_id": lease.task.id,
            "name": lease.task.name,
            "attempt": lease.attempt,
            "fence": lease.fence,
            "correlation_id": lease.task.correlation_id,
            "worker_id": lease.worker_id,
        },
    )


class TextFormatter(logging.Formatter):
    """One line for people: when, how bad, which task, what."""

    def __init__(self, *, colour: bool, timed: bool = True) -> None:
        super().__init__()
        self._colour = colour
        #: Without a time (and a level) where somebody else notes them.
        self._timed = timed

    def format(self, record: logging.LogRecord) -> str:
        """The record as text."""
        when = time.strftime("%H:%M:%S", time.localtime(record.created))
        text = record.getMessage()
        about: dict[str, Any] | None = getattr(record, "dfq_task", None)
        if about is not None:
            name = f" {about['name']}" if about["name"] else ""
            text = (
                f"{about['task_id']}{name} attempt={about['attempt']} fence={about['fence']} "
                f"correlation={about['correlation_id']}: {text}"
            )
        if record.exc_info:
            text = f"{text}\n{self.formatException(record.exc_info)}"
        if not self._timed:
            return text
        line = f"{when} {record.levelname.lower():<7} {text}"
        code = _COLOURS.get(record.levelname)
        return f"\x1b[{code}m{line}\x1b[0m" if self._colour and code else line


class JSONFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON."""
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            "pid": record.process,
            **getattr(record, "dfq_task", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        # A message may hold half a surrogate pair; a log line must come out all the same.
        return orjson.dumps(_printable(line)).decode()


def _printable(line: dict[str, Any]) -> dict[str, Any]:
    return {
        key: value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value
        for key, value in line.items()
    }


#: The levels of syslog, as a prefix that the journal takes away again.
_SYSLOG = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
_SYSLOG_DEBUG = 7


class JournalFormatter(logging.Formatter):
    """Lines for the journal: each with its level, and without the time, which it has itself."""

    def __init__(self, inner: logging.Formatter) -> None:
        super().__init__()
        self._inner = inner

    def format(self, record: logging.LogRecord) -> str:
        """The record, every line of it with its level."""
        level = next((code for at, code in _SYSLOG if record.levelno >= at), _SYSLOG_DEBUG)
        lines = self._inner.format(record).splitlines() or [""]
        return "\n".join(f"<{level}>{line}" for line in lines)


def goes_to_journal(stream: TextIO) -> bool:
    """Whether what is written there ends up in systemd's journal."""
    named = os.environ.get("JOURNAL_STREAM")
    if not named:
        return False
    try:
        found = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return named == f"{found.st_dev}:{found.st_ino}"


def configure(*, as_json: bool, stream: TextIO | None = None) -> None:
    """Send the log to ``stream`` (stderr), unless the program has set up logging itself."""
    if not as_json and stream is None and LOGGER.hasHandlers():
        return
    stream = stream or sys.stderr
    handler = logging.StreamHandler(stream)
    colour = stream.isatty() and "NO_COLOR" not in os.environ
    in_journal = goes_to_journal(stream)
    formatter: logging.Formatter = (
        JSONFormatter() if as_json else TextFormatter(colour=colour, timed=not in_journal)
    )
    handler.setFormatter(JournalFormatter(formatter) if in_journal else formatter)
    for old in [old for old in LOGGER.handlers if getattr(old, "made_by_dfq", False)]:
        LOGGER.removeHandler(old)
    handler.made_by_dfq = True  # type: ignore[attr-defined]
    LOGGER.addHandler(handler)
    LOGGER.propagate = False
    if LOGGER.level == logging.NOTSET:
        LOGGER.setLevel(logging.INFO)
