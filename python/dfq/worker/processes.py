"""Several worker processes: a supervisor starts them, keeps them running and ends them.

Each child runs the same command line again, and knows from its environment that it is a
child (see :mod:`dfq.worker.child`).
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from queue import Empty, SimpleQueue
from typing import IO

from dfq.ambient import Chance, Clock
from dfq.worker.backoff import Backoff
from dfq.worker.child import CHILD_VARIABLE, Place
from dfq.worker.hearing import Hearing
from dfq.worker.logs import LOGGER
from dfq.worker.notify import READY, STOPPING, Notifier
from dfq.worker.signals import StopSignals
from dfq.worker.watchdog import Watchdog

#: A child that lived this long was well; its next death starts counting anew.
WELL_SECONDS = 60.0
#: So many deaths in a row, and it will not get better.
MAX_DEATHS = 8
#: Exit codes of mistakes that starting again does not mend: usage, data, configuration.
HOPELESS = frozenset({2, 64, 65, 66, 78})
#: How long to wait for what a child wrote to stderr at its end.
LAST_WORDS_SECONDS = 1.0


class Supervisor:
    """Keeps so many processes of one command running until they are done, or told to stop."""

    def __init__(
        self,
        command: Sequence[str],
        count: int,
        clock: Clock,
        chance: Chance,
        *,
        pass_on_stderr: bool = False,
        endless: bool = False,
        notifier: Notifier | None = None,
    ) -> None:
        self._command = tuple(command)
        self._clock = clock
        #: Whether what the children write to stderr goes through ours, line by line.
        self._pass_on_stderr = pass_on_stderr
        #: Whether a child has no reason to end before it is told to, not even well.
        self._endless = endless
        self._relays: list[threading.Thread] = []
        self._inbox: SimpleQueue[int | _Child | None] = SimpleQueue()
        self._read_end, self._write_end = os.pipe()
        self._children = [_Child(number, Backoff(chance)) for number in range(1, count + 1)]
        self._notifier = notifier or Notifier()
        # A child that hangs is ours to kill; what is told is that this loop goes on.
        self._watchdog = Watchdog(self._notifier, clock, self._in_words)
        self._ready = False
        self._stopping = False
        #: What it ends with whatever the children say: a second signal, or giving up.
        self._verdict: int | None = None
        self._code = 0

    def run(self) -> int:
        """Start the children and wait for them; returns the exit code."""
        try:
            with StopSignals(self._inbox.put, wake=lambda: self._inbox.put(None)):
                for child in self._children:
                    self._start(child)
                while any(child.wanted or child.process for child in self._children):
                    self._step()
            for relay in self._relays:
                # Bounded: a program that outlives its worker may hold on to the pipe.
                relay.join(LAST_WORDS_SECONDS)
        finally:
            os.close(self._read_end)
            os.close(self._write_end)
        return self._code if self._verdict is None else self._verdict

    def _step(self) -> None:
        now = self._clock.boot()
        due = [child.start_at for child in self._children if child.start_at is not None]
        due += [child.hearing.hung_at for child in self._children if child.hearing is not None]
        due = [at for at in (*due, self._watchdog.due_at) if at < math.inf]
        try:
            message = self._inbox.get(timeout=max(0.0, min(due) - now) if due else None)
        except Empty:
            pass
        else:
            if isinstance(message, int):
                if self._stopping and self._verdict is None:
                    self._verdict = 128 + message
                self._stop()
            elif message is not None:
                self._ended(message)
        now = self._clock.boot()
        for child in self._children:
            if child.start_at is not None and child.start_at <= now:
                self._start(child)
            elif child.hearing is not None and child.hearing.hung_at <= now:
                self._kill(child)
        self._watchdog.feed()
        if not self._ready and all(
            c.hearing is not None and c.hearing.ready for c in self._children
        ):
            self._ready = True
            self._watchdog.begin(READY)

    def _start(self, child: _Child) -> None:
        here = Place(child.number, len(self._children), self._read_end)
        child.start_at = None
        child.started = self._clock.boot()
        child.given_up = False
        environment = {**os.environ, CHILD_VARIABLE: here.encode()}
        inherited = [self._read_end]
        if self._notifier.heard:
            child.hearing = Hearing(
                self._clock, self._notifier.watchdog_seconds, lambda: self._inbox.put(None)
            )
            environment.update([child.hearing.variable])
            inherited.append(child.hearing.descriptor)
        child.process = subprocess.Popen(
            self._command,
            env=environment,
            stderr=subprocess.PIPE if self._pass_on_stderr else None,
            pass_fds=inherited,
            # Ctrl-C reaches the whole foreground group; the children get it from us, once.
            process_group=0,
        )
        if child.hearing is not None:
            child.hearing.begin()
        LOGGER.debug("worker process %d started, pid %d", child.number, child.process.pid)
        threading.Thread(
            target=self._await, args=(child, child.process), name="dfq-await", daemon=True
        ).start()
        if child.process.stderr is not None:
            relay = threading.Thread(
                target=_relay, args=(child.process.stderr,), name="dfq-relay", daemon=True
            )
            relay.start()
            self._relays = [other for other in self._relays if other.is_alive()] + [relay]

    def _await(self, child: _Child, process: subprocess.Popen[bytes]) -> None:
        process.wait()
        self._inbox.put(child)

    def _kill(self, child: _Child) -> None:
        assert child.process is not None and child.hearing is not None
        # The first shows in the log where it hangs; the second can't be caught.
        number = signal.SIGKILL if child.given_up else signal.SIGABRT
        child.given_up = True
        child.hearing.spare()
        LOGGER.error("worker process %d gives no sign of life; ending it", child.number)
        child.process.send_signal(number)

    def _in_words(self) -> str:
        running = sum(child.process is not None for child in self._children)
        return f"{running} of {len(self._children)} processes run"

    def _stop(self) -> None:
        if not self._stopping:
            self._notifier.tell(STOPPING)
        self._stopping = True
        for child in self._children:
            child.wanted = False
            child.start_at = None
            if child.process is not None:
                # Also for Ctrl-C: a child that is still starting up would print a traceback.
                child.process.send_signal(signal.SIGTERM)

    def _ended(self, child: _Child) -> None:
        assert child.process is not None
        code = child.process.returncode
        child.process = None
        child.hearing = None
        if not child.wanted or (code == 0 and not self._endless):
            child.wanted = False
            # Killed by our signal: it had not yet got so far as to take tasks.
            if code != -signal.SIGTERM:
                self._code = max(self._code, code if code >= 0 else 128 - code)
            return
        if code in HOPELESS:
            self._give_up(f"worker process {child.number} ended with exit code {code}", code)
            return
        if self._clock.boot() - child.started > WELL_SECONDS:
            child.backoff.reset()
        wait = child.backoff.next_seconds()
        if child.backoff.failures > MAX_DEATHS:
            self._give_up(f"worker process {child.number} died {MAX_DEATHS} times in a row", 1)
            return
        how = f"exit code {code}" if code >= 0 else f"signal {-code}"
        LOGGER.error(
            "worker process %d died (%s); starting it again in %.1f s", child.number, how, wait
        )
        child.start_at = self._clock.boot() + wait

    def _give_up(self, why: str, code: int) -> None:
        LOGGER.error("%s; stopping all of them", why)
        if self._verdict is None:
            self._verdict = code
        self._stop()


class _Child:
    def __init__(self, number: int, backoff: Backoff) -> None:
        self.number = number
        self.backoff = backoff
        self.process: subprocess.Popen[bytes] | None = None
        self.hearing: Hearing | None = None
        #: Whether it hung, and was told to end.
        self.given_up = False
        self.started = 0.0
        self.start_at: float | None = None
        #: Whether it is to be started again when it dies.
        self.wanted = True


def _relay(pipe: IO[bytes]) -> None:
    with pipe:
        for line in pipe:
            # Looked up anew for each: a progress bar puts its own in the place of stderr.
            sys.stderr.write(line.decode(errors="backslashreplace"))
            sys.stderr.flush()


def own_command() -> list[str]:
    """The command line this process was started with."""
    return [sys.executable, *sys.orig_argv[1:]]
