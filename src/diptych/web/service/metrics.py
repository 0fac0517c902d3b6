"""What Prometheus is told: requests, how long they took, how large the batches were, what waits, what is indexed."""

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

SECONDS = (0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1, 2.5, 5, 10, 30)
SIZES = (1, 2, 4, 8, 16, 32, 64)
CONTENT_TYPE = CONTENT_TYPE_LATEST


class Metrics:
    """The counters of one server.

    lanes: for each kind of work, how much waits and how much was refused; counts: entries by kind
    """

    def __init__(
        self,
        lanes: Callable[[], dict[str, tuple[int, int]]],
        counts: Callable[[], dict[str, int]],
    ) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "diptych_requests", "Requests by route, method and status.", ["route", "method", "status"],
            registry=self.registry,
        )  # fmt: skip
        self.seconds = Histogram(
            "diptych_request_seconds", "From the first byte in to the last byte out.", ["route"], buckets=SECONDS,
            registry=self.registry,
        )  # fmt: skip
        self.batches = Histogram(
            "diptych_batch_size", "Searches that went through the model together.", ["lane"], buckets=SIZES,
            registry=self.registry,
        )  # fmt: skip
        self.registry.register(_Now(lanes, counts))
        ProcessCollector(registry=self.registry)

    def batch(self, lane: str) -> Callable[[int], None]:
        """What a batcher tells its sizes to."""
        child = self.batches.labels(lane)
        return lambda size: child.observe(size)

    def text(self) -> bytes:
        """All of it, in Prometheus' own format."""
        return generate_latest(self.registry)


class _Now(Collector):
    """What is counted at the moment it is asked for."""

    def __init__(self, lanes: Callable[[], dict[str, tuple[int, int]]], counts: Callable[[], dict[str, int]]) -> None:
        self._lanes, self._counts = lanes, counts

    def describe(self) -> Iterable[Metric]:
        """Nothing ahead of time, so that registering asks nothing of the index."""
        return []

    def collect(self) -> Iterable[Metric]:
        """Queues, refusals and entries."""
        waiting = GaugeMetricFamily("diptych_waiting", "Requests that wait or are at work.", labels=["lane"])
        refused = CounterMetricFamily("diptych_refused", "Requests told to come back later.", labels=["lane"])
        for lane, (size, count) in self._lanes().items():
            waiting.add_metric([lane], size)
            refused.add_metric([lane], count)
        entries = GaugeMetricFamily("diptych_index_entries", "Entries in the index.", labels=["kind"])
        for kind, count in self._counts().items():
            entries.add_metric([kind], count)
        return [waiting, refused, entries]
