"""Run other programs: never without a time limit, and with their output when they fail."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

Command = Sequence[str | Path]


class Failed(Exception):
    """A step did not work; the message says which, and what to do."""


def say(text: str) -> None:
    """One line for whoever waits."""
    print(f"arm: {text}", file=sys.stderr, flush=True)


def run(
    command: Command,
    *,
    seconds: float,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> str:
    """What the program printed; Failed, with its last lines, if it did not end well."""
    code, output = _wait(command, seconds, env, cwd, subprocess.PIPE)
    if code:
        tail = "\n".join(output.strip().splitlines()[-30:])
        raise Failed(f"{_name(command)} ended with {code}:\n{tail}")
    return output


def show(
    command: Command,
    *,
    seconds: float,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    log: Path | None = None,
) -> int:
    """Let the program print as it likes, or into a file; its exit code."""
    if log is None:
        return _wait(command, seconds, env, cwd, None)[0]
    with log.open("w") as file:
        return _wait(command, seconds, env, cwd, file)[0]


def _wait(
    command: Command,
    seconds: float,
    env: Mapping[str, str] | None,
    cwd: Path | None,
    output: int | IO[str] | None,
) -> tuple[int, str]:
    try:
        process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=None if output is None else subprocess.STDOUT,
            env=None if env is None else dict(env),
            cwd=cwd,
            text=True,
            errors="replace",
            # Of its own group: what it started must not outlive it either.
            start_new_session=True,
        )
    except FileNotFoundError as error:
        raise Failed(f"{_name(command)} is not installed") from error
    try:
        printed, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired as error:
        raise Failed(f"{_name(command)} was still running after {seconds:g} s") from error
    finally:
        if process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return process.returncode, printed or ""


def _name(command: Command) -> str:
    return " ".join(Path(part).name if n == 0 else str(part) for n, part in enumerate(command[:4]))
