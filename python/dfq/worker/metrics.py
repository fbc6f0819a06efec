"""What a worker does, as Prometheus counts it: served over HTTP, on this machine unless told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol, get_args, runtime_checkable

from dfq.errors import InvalidConfig
from dfq.queue import Queue
from dfq.store import RequestCounter
from dfq.worker.logs import LOGGER
from dfq.worker.settlement import Settled

if TYPE_CHECKING:
    from prometheus_client.registry import CollectorRegistry

#: A handler may take a millisecond or an hour.
BUCKETS_SECONDS = (0.001, 0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600)


@runtime_checkable
class InStore(Protocol):
    """A queue that is kept in a store, which counts its requests."""

    @property
    def store(self) -> Counted:
        """Where it is kept."""
        ...


class Counted(Protocol):
    """What counts requests."""

    @property
    def requests(self) -> RequestCounter:
        """The requests sent so far."""
        ...


class Metrics:
    """Counts what a worker does, and serves it. Safe from threads."""

    def __init__(
        self, queue: Queue, *, held: Callable[[], int], failed_beats: Callable[[], int]
    ) -> None:
        client = _client()
        self._registry: CollectorRegistry = client.CollectorRegistry()
        self._claimed = client.Counter(
            "dfq_tasks_claimed", "Tasks this worker took.", registry=self._registry
        )
        self._settled = client.Counter(
            "dfq_tasks_settled",
            "Tasks this worker was done with, by what became of them.",
            ["outcome"],
            registry=self._registry,
        )
        # So that a rate can be taken from the start on.
        for outcome in get_args(Settled):
            self._settled.labels(outcome)
        self._seconds = client.Histogram(
            "dfq_handler_seconds",
            "How long handlers took.",
            buckets=BUCKETS_SECONDS,
            registry=self._registry,
        )
        client.Gauge(
            "dfq_leases_held", "Tasks this worker holds now.", registry=self._registry
        ).set_function(held)
        self._registry.register(_Elsewhere(queue, failed_beats))
        self._server: Any = None

    def claimed(self) -> None:
        """A task was taken."""
        self._claimed.inc()

    def settled(self, outcome: Settled, handler_seconds: float) -> None:
        """A task was settled, one way or another."""
        self._settled.labels(outcome).inc()
        self._seconds.observe(handler_seconds)

    def serve(self, host: str, port: int) -> str:
        """Begin to serve; where. Port 0 is any that is free."""
        try:
            self._server, _ = _client().start_http_server(port, host, self._registry)
        except OSError as error:
            raise InvalidConfig(
                f"metrics can't be served at {host} port {port}: {error.strerror or error}; "
                "choose another with --metrics-port or --metrics-host"
            ) from None
        shown = f"[{host}]" if ":" in host else host
        url = f"http://{shown}:{self._server.server_port}/metrics"
        LOGGER.info("metrics are at %s", url)
        return url

    def stop(self) -> None:
        """Serve no more."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


class _Elsewhere:
    """What is counted elsewhere, and only read when somebody asks."""

    def __init__(self, queue: Queue, failed_beats: Callable[[], int]) -> None:
        self._queue = queue
        self._failed_beats = failed_beats

    def collect(self) -> Iterator[Any]:
        """The counts now."""
        from prometheus_client.core import CounterMetricFamily

        yield CounterMetricFamily(
            "dfq_heartbeats_failed",
            "Rounds of heartbeats that did not get through.",
            value=self._failed_beats(),
        )
        if isinstance(self._queue, InStore):
            family = CounterMetricFamily(
                "dfq_store_requests", "Requests to the bucket, by kind.", labels=["kind"]
            )
            for kind, count in self._queue.store.requests.snapshot().items():
                family.add_metric([kind], count)
            yield family


def ensure_installed() -> None:
    """Raise if there is nothing to count with."""
    _client()


def _client() -> Any:
    try:
        import prometheus_client
    except ModuleNotFoundError as error:
        if error.name != "prometheus_client":
            raise
        raise InvalidConfig(
            "metrics need prometheus-client, which is not installed; "
            "run pip install 'dfq[metrics]', or leave --metrics-port out"
        ) from None
    return prometheus_client
