"""Programs as handlers: the payload on stdin, the exit code decides.

0 completes the task; what it printed is the result, as JSON if it is JSON, else as text.
75 puts it back without counting a failure. 100 rejects it for good. Anything else, or a
signal, is a failure, with the end of stderr as its message.

The program runs in a process group of its own, which is killed when the time is up or the
lease is lost. A process it leaves behind on success is let be, and not waited for, even
if it keeps the pipes open.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shlex
import shutil
import signal
import subprocess
import threading
from dataclasses import dataclass, field
from typing import IO, Any

import orjson

from dfq.errors import HandlerError, Reject, RetryLater
from dfq.worker.context import TaskContext
from dfq.worker.handlers import HandlerSet

EXIT_AGAIN_LATER = 75
EXIT_REJECT = 100

#: The end of stderr that goes into the task's history.
STDERR_CHARACTERS = 2_000
_CHUNK = 65_536
# Where a process can't be waited for together with its pipes, it is looked at this often.
_POLL_SECONDS = 0.05


class CommandFailed(Exception):
    """The program ended with an exit code that means failure."""


@dataclass(frozen=True)
class CommandEntry:
    """Runs one program for every task."""

    arguments: tuple[str, ...]
    is_async: bool = False
    stoppable: bool = True
    timeout_seconds: float | None = None

    @property
    def name(self) -> str:
        """The program."""
        return self.arguments[0]

    def invoke(self, context: TaskContext) -> Any:
        """Run the program to its end and turn its exit code into a result or an error."""
        limit = context.queue.policy.max_result_bytes
        try:
            process = subprocess.Popen(
                self.arguments,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, **_environment(context)},
                start_new_session=True,
                bufsize=0,
            )
        except OSError as error:
            raise CommandFailed(f"{self.name} can't be started: {error}") from None
        group = _Group(process)
        context.cancelled.when_set(group.kill)
        try:
            output = _Exchange(process, orjson.dumps(context.task.payload), limit).run()
        except BaseException:
            group.kill()
            raise
        finally:
            group.reap()
        return _outcome(process.returncode, output, limit)


def command_handlers(line: str) -> HandlerSet:
    """The program of a command line (no shell: quotes work, pipes and variables don't)."""
    try:
        arguments = tuple(shlex.split(line))
    except ValueError as error:
        raise HandlerError(f"the command {line!r} can't be read: {error}") from None
    if not arguments:
        raise HandlerError("the command is empty; give the program and its arguments")
    if shutil.which(arguments[0]) is None:
        raise HandlerError(
            f"there is no program {arguments[0]!r} that can be run; mend the name or PATH. "
            "For a pipeline write: sh -c '…'"
        )
    return HandlerSet(default=CommandEntry(arguments), any_name=True)


def _environment(context: TaskContext) -> dict[str, str]:
    return {
        "DFQ_TASK_ID": context.task.id,
        "DFQ_TASK_NAME": context.task.name or "",
        "DFQ_FENCE": str(context.fence),
        "DFQ_ATTEMPT": str(context.attempt),
        "DFQ_CORRELATION_ID": context.task.correlation_id,
        "DFQ_QUEUE_URL": context.queue.url,
    }


class _Group:
    """The process group of a program, killed at most once, and never after it was reaped."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._lock = threading.Lock()
        self._reaped = False

    def kill(self) -> None:
        """Kill the program and what it started."""
        # Until the program is reaped its number, and its group's, can't be another's.
        with self._lock:
            if not self._reaped:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, signal.SIGKILL)

    def reap(self) -> None:
        """Take the exit code; the program has ended or is being killed."""
        if hasattr(os, "waitid"):  # waits outside the lock, and leaves the number taken
            os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        else:
            self._process.wait()
        with self._lock:
            self._reaped = True
            self._process.wait()


@dataclass
class _Output:
    stdout: bytearray = field(default_factory=bytearray)
    stderr: bytearray = field(default_factory=bytearray)


class _Exchange:
    """Feeds a program and keeps what it prints, within bounds, until the program has ended."""

    def __init__(self, process: subprocess.Popen[bytes], payload: bytes, limit: int) -> None:
        self._process = process
        self._left = memoryview(payload)
        self._limit = limit
        self._output = _Output()
        self._selector = selectors.DefaultSelector()

    def run(self) -> _Output:
        assert self._process.stdin and self._process.stdout and self._process.stderr
        pipes = (self._process.stdin, self._process.stdout, self._process.stderr)
        pidfd = _open_pidfd(self._process.pid)
        try:
            for pipe in pipes:
                os.set_blocking(pipe.fileno(), False)
                writes = pipe is self._process.stdin
                self._selector.register(
                    pipe, selectors.EVENT_WRITE if writes else selectors.EVENT_READ
                )
            if pidfd is not None:
                self._selector.register(pidfd, selectors.EVENT_READ)
            while not self._step(pidfd):
                pass
            for pipe in pipes[1:]:
                self._read(pipe)  # what it printed last is in the pipe still
        finally:
            self._selector.close()
            if pidfd is not None:
                os.close(pidfd)
            for pipe in pipes:
                with contextlib.suppress(OSError):
                    pipe.close()
        return self._output

    def _step(self, pidfd: int | None) -> bool:
        ended = False
        for key, _ in self._selector.select(None if pidfd is not None else _POLL_SECONDS):
            if key.fileobj == pidfd:
                ended = True
            elif key.fileobj is self._process.stdin:
                self._write()
            elif not self._read(key.fileobj):  # type: ignore[arg-type]
                self._selector.unregister(key.fileobj)
        if pidfd is None:
            ended = _has_ended(self._process)
        return ended

    def _write(self) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        try:
            written = os.write(stdin.fileno(), self._left[:_CHUNK])
        except BlockingIOError:
            return
        except OSError:  # it does not want to read more
            written = len(self._left)
        self._left = self._left[written:]
        if not self._left:
            self._selector.unregister(stdin)
            stdin.close()

    def _read(self, pipe: IO[bytes]) -> bool:
        """Read what is there; False at the end of the pipe."""
        # A bounded number of rounds: a program that never stops printing must not keep us here.
        for _ in range(16):
            if pipe.closed:
                return False
            try:
                chunk = os.read(pipe.fileno(), _CHUNK)
            except BlockingIOError:
                return True
            except OSError:
                return False
            if not chunk:
                return False
            self._keep(pipe, chunk)
        return True

    def _keep(self, pipe: IO[bytes], chunk: bytes) -> None:
        if pipe is self._process.stdout:
            # One byte more than the limit shows that it was passed.
            room = self._limit + 1 - len(self._output.stdout)
            self._output.stdout += chunk[: max(0, room)]
        else:
            self._output.stderr += chunk
            del self._output.stderr[: -4 * STDERR_CHARACTERS]


def _outcome(code: int, output: _Output, limit: int) -> Any:
    said = output.stderr.decode(errors="replace").strip()[-STDERR_CHARACTERS:]
    if code == 0:
        return _result(bytes(output.stdout), limit)
    if code == EXIT_AGAIN_LATER:
        raise RetryLater(said)
    if code == EXIT_REJECT:
        raise Reject(said or f"the program ended with exit code {code}")
    how = f"exit code {code}" if code > 0 else f"killed by {_signal_name(-code)}"
    raise CommandFailed(f"{how}: {said}" if said else how)


def _result(printed: bytes, limit: int) -> Any:
    if not printed.strip():
        return None
    if len(printed) <= limit:
        with contextlib.suppress(ValueError):
            return orjson.loads(printed)
    # As text it needs quotes and may need escapes; a quarter of the limit always fits.
    text = printed.decode(errors="replace").strip()
    bound = max(16, limit // 8)
    return text if len(text) <= bound else text[: bound - 1] + "…"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _open_pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    if not hasattr(os, "waitid"):
        return process.poll() is not None
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
