"""What Prometheus is told: requests and searches, how long they took, what waits, what is indexed."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from diptych.web.service.figures import LaneFigures
from diptych.web.service.processes import Processes

SECONDS = (0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1, 2.5, 5, 10, 30)
STAGE_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2.5, 10)
SIZES = (1, 2, 4, 8, 16, 32, 64)
CONTENT_TYPE = CONTENT_TYPE_LATEST


@dataclass(frozen=True)
class Look:
    """What is looked at when the figures are asked for, by whichever process is asked.

    counts: entries by kind, nothing where the index does not answer; ready: whether the server can answer
    about: model, index and version
    """

    counts: Callable[[], Mapping[str, int]]
    ready: Callable[[], bool]
    about: Callable[[], dict[str, str]]


class Metrics:
    """The figures of one server.

    folder: where the worker processes of a server keep theirs, so that each can tell those of all; None for one process
    """

    def __init__(self, look: Look, folder: Path | None = None) -> None:
        own = CollectorRegistry()
        self.requests = Counter(
            "diptych_requests", "Requests by route, method and status.", ["route", "method", "status"], registry=own
        )
        self.seconds = Histogram(
            "diptych_request_seconds", "From the first byte in to the last byte out.", ["route"], buckets=SECONDS,
            registry=own,
        )  # fmt: skip
        self._searches = Counter("diptych_searches", "Searches by what came of them.", ["outcome"], registry=own)
        for outcome in ("answered", "remembered", "refused", "dropped", "failed"):
            self._searches.labels(outcome)
        self._stages = Histogram(
            "diptych_stage_seconds", "What a batch of searches took at each stage.", ["stage"], buckets=STAGE_SECONDS,
            registry=own,
        )  # fmt: skip
        self._batches = Histogram(
            "diptych_batch_size", "Searches that went through the model together.", ["lane"], buckets=SIZES,
            registry=own,
        )  # fmt: skip
        self._waiting = Gauge(
            "diptych_waiting", "Requests that wait or are at work.", ["lane"], registry=own, multiprocess_mode="livesum"
        )
        self._refused = Counter("diptych_refused", "Requests told to come back later.", ["lane"], registry=own)
        workers = Gauge("diptych_workers", "Processes that serve.", registry=own, multiprocess_mode="livesum")
        workers.set(1)
        self._loading = Gauge(
            "diptych_model_load_seconds", "What loading the models and running each once took.", registry=own,
            multiprocess_mode="livemax",
        )  # fmt: skip
        self._shown = own
        if folder is not None:
            self._shown = CollectorRegistry()
            MultiProcessCollector(self._shown, str(folder))  # type: ignore[no-untyped-call]
        self._shown.register(_Now(look))
        self._shown.register(Processes(folder))

    def lane(self, name: str) -> LaneFigures:
        """What a lane of work tells its figures to."""
        waiting, refused = self._waiting.labels(name), self._refused.labels(name)
        # Most lanes have no batches, and nothing to show of them.
        return LaneFigures(lambda size: self._batches.labels(name).observe(size), waiting.set, refused.inc)

    def searched(self, outcome: str) -> None:
        """A search came to an end."""
        self._searches.labels(outcome).inc()

    def timed(self, timings: Mapping[str, float]) -> None:
        """A batch of searches took so many seconds at each stage."""
        for stage, seconds in timings.items():
            if stage != "total":
                self._stages.labels(stage).observe(seconds)

    def loaded(self, seconds: float) -> None:
        """The models are loaded."""
        self._loading.set(seconds)

    def text(self) -> bytes:
        """All of it, in Prometheus' own format."""
        return generate_latest(self._shown)


class _Now(Collector):
    """What is looked at the moment it is asked for."""

    def __init__(self, look: Look) -> None:
        self._look = look

    def describe(self) -> Iterable[Metric]:
        """Nothing ahead of time, so that registering asks nothing of the index."""
        return []

    def collect(self) -> Iterable[Metric]:
        """Entries, readiness, and what is served."""
        entries = GaugeMetricFamily("diptych_index_entries", "Entries in the index.", labels=["kind"])
        for kind, count in self._look.counts().items():
            entries.add_metric([kind], count)
        yield entries
        yield GaugeMetricFamily("diptych_ready", "Whether the server can answer.", value=float(self._look.ready()))
        yield InfoMetricFamily("diptych_index", "Which model, index and version.", value=self._look.about())
