"""Memory, time and files of the processes of a server, as one."""

import re
from collections.abc import Iterable
from pathlib import Path

from prometheus_client import ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

# Of all that is told of a process, these do not add up.
LEAST = frozenset({"process_start_time_seconds", "process_max_fds"})
_LIVE = re.compile(r"gauge_livesum_(\d+)\.db")


class Processes(Collector):
    """What is told of a process, summed over all that serve; of starts and limits, the least.

    folder: where the worker processes keep their figures; None for this process alone
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def describe(self) -> Iterable[Metric]:
        """Nothing ahead of time."""
        return []

    def collect(self) -> Iterable[Metric]:
        """The same figures as of one process."""
        told: dict[str, list[Metric]] = {}
        for pid in self._pids():
            for metric in ProcessCollector(pid=lambda pid=pid: pid, registry=None).collect():  # type: ignore[misc]
                told.setdefault(metric.name, []).append(metric)
        for name, metrics in told.items():
            values = [metric.samples[0].value for metric in metrics]
            value = min(values) if name in LEAST else sum(values)
            family = CounterMetricFamily if metrics[0].type == "counter" else GaugeMetricFamily
            yield family(name, metrics[0].documentation, value=value)

    def _pids(self) -> list[int | str]:
        if self._folder is None:
            return ["self"]
        found = (_LIVE.fullmatch(path.name) for path in self._folder.iterdir())
        return [int(match[1]) for match in found if match]
