"""Queues in buckets of real servers, the command line on them, and servers that refuse."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

import dfq
from dfq.ambient import SYSTEM_CLOCK
from dfq.handler import Handler
from dfq.queue import Queue
from dfq.stores.certify import remember
from dfq.stores.s3 import S3Store
from dfq.stores.verdict import Verdict
from dfq.worker.handlers import handler_set
from dfq.worker.loop import Worker
from dfq.worker.options import WorkerOptions
from tests.servers import Server, clean_environment
from tests.servers.messages import Message
from tests.servers.proxy import Proxy, faulty_proxy

PACKAGE = Path(dfq.__file__).parents[1]
#: No test waits longer than this for something that should happen.
LONG = 60.0

_NUMBERS = itertools.count()

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(autouse=True)
def no_settings_of_people(aws_settings: None) -> None:
    """Every test here talks to a server of its own."""


@pytest.fixture
def prefix() -> str:
    """A place in a bucket that nobody else uses."""
    return f"queues/{next(_NUMBERS)}"


@pytest.fixture
def fresh_url(running_server: Callable[[str], Server], prefix: str) -> str:
    """A queue in a bucket that nobody has used yet."""
    return running_server("ministack").url(prefix)


@pytest.fixture
def url(fresh_url: str) -> str:
    """A fresh queue in a bucket that is known to be safe."""
    _trust(fresh_url)
    return fresh_url


@pytest.fixture
def store(url: str) -> Iterator[S3Store]:
    """What is under the queue."""
    with closing(S3Store(url)) as store:
        yield store


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """What a command line process starts with."""
    clean = {name: text for name, text in clean_environment().items() if name[:4] != "DFQ_"}
    return {**clean, "PYTHONPATH": str(PACKAGE), "HOME": str(tmp_path)}


@pytest.fixture
def run(tmp_path: Path, environment: dict[str, str]) -> Run:
    """Run a command line to its end, as a process."""

    def run(*words: str, stdin: str = "", start: tuple[str, ...] = ("-m", "dfq"), **more: str):
        return subprocess.run(
            [sys.executable, *start, *words],
            input=stdin,
            cwd=tmp_path,
            env=environment | more,
            capture_output=True,
            text=True,
            check=False,
            timeout=LONG,
        )

    return run


def _trust(url: str) -> None:
    """Note that a store was certified: on SeaweedFS the races take a while."""
    with closing(S3Store(url)) as store:
        verdict = Verdict(
            store=store.url,
            endpoint=store.endpoint,
            problems=(),
            conditional_delete=True,
            requests={},
            at=store.now(),
            seconds=0.0,
            writers=2,
            rounds={},
        )
        remember(store, verdict)


@pytest.fixture
def trust() -> Callable[[str], None]:
    """Takes stores for certified."""
    return _trust


class OffClock:
    """This machine's clock, with the time of day so far off."""

    def __init__(self, seconds: float) -> None:
        self._off_seconds = seconds

    def wall(self) -> float:
        return SYSTEM_CLOCK.wall() + self._off_seconds

    def boot(self) -> float:
        return SYSTEM_CLOCK.boot()


@pytest.fixture
def off_clock() -> type[OffClock]:
    """Makes clocks that are off."""
    return OffClock


@pytest.fixture
def trusted_url(running_server: Callable[[str], Server], prefix: str) -> str:
    """The same on SeaweedFS, which checks signatures and dates."""
    url = running_server("seaweedfs").url(prefix)
    _trust(url)
    return url


@pytest.fixture
def opened() -> Iterator[Callable[..., Queue]]:
    """Open queues, and close them in the end."""
    with ExitStack() as stack:
        yield lambda url, **options: stack.enter_context(dfq.open(url, **options))


class Background:
    """A worker that runs in a thread of its own."""

    def __init__(self, queue: Queue, handler: Handler, **options: object) -> None:
        self.worker = Worker(queue, handler_set(handler), WorkerOptions(**options))
        self.code: int | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        self.code = self.worker.run()

    def ended(self) -> int | None:
        """Wait for it to end by itself; the exit code."""
        self._thread.join(LONG)
        assert not self._thread.is_alive(), "the worker did not end"
        return self.code

    def stop(self) -> None:
        self.worker.stop(at_once=True)
        self._thread.join(LONG)


@pytest.fixture
def work() -> Iterator[Callable[..., Background]]:
    """Start workers, and see to it that they end."""
    started: list[Background] = []

    def work(queue: Queue, handler: Handler, **options: object) -> Background:
        started.append(Background(queue, handler, **options))
        return started[-1]

    yield work
    for one in started:
        one.stop()


class Gatekeeper:
    """Stands before a server and refuses requests with an error of S3's, while it is told to."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._serve = proxy.serve
        self.refuses: Callable[[Message], str | None] = lambda request: None
        #: How many were refused, as a signal.
        self.refused = threading.Semaphore(0)
        proxy.serve = self._answer  # type: ignore[method-assign]

    def url(self, prefix: str, **parameters: object) -> str:
        return self._proxy.url(prefix, **parameters)

    def _answer(self, request: Message, client: Any, upstream: Any) -> bool:
        code = self.refuses(request)
        if code is None:
            return self._serve(request, client, upstream)
        body = f"<Error><Code>{code}</Code><Message>by the gatekeeper</Message></Error>".encode()
        head = (
            "HTTP/1.1 403 Forbidden\r\n"
            f"Date: {self._date()}\r\n"
            f"Content-Type: application/xml\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        client.sendall(head.encode() + (b"" if request.method == "HEAD" else body))
        self.refused.release()
        return True

    def _date(self) -> str:
        """The server's own."""
        from email.utils import formatdate

        return formatdate(usegmt=True)


@pytest.fixture
def gatekeeper(running_server: Callable[[str], Server]) -> Iterator[Gatekeeper]:
    """In front of ministack."""
    with faulty_proxy(running_server("ministack")) as proxy:
        yield Gatekeeper(proxy)
