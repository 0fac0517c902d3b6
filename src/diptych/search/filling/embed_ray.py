"""Ray Data as the engine past one machine: a pool of workers, each with a model of its own, that write parts.

What goes through Ray is a row a part: its items on the way there, a few numbers on the way back. Vectors go from a
worker straight into its part's file, so that neither the driver nor Ray's object store holds any.
"""

import json
import logging
import math
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from diptych.common.errors import DiptychError
from diptych.search.filling.embed_plan import EmbedPlan, PlanPart
from diptych.search.filling.parts_folder import PartsFolder

if TYPE_CHECKING:  # these need torch, which a driver does not
    from diptych.search.filling.embed_engine import Speed
    from diptych.search.filling.embed_parts import PartDone

# A part that ends its worker is given to another; after so many there is an error.
RETRIES = 3
# Tasks that wait at a worker besides the one that it is at.
WAITING = 1
# Seconds to wait for a cluster.
PATIENCE = 10.0
# Beyond so many tasks each has several parts.
MOST_TASKS = 2000


@dataclass(frozen=True)
class RayPool:
    """Workers, each with a model of its own.

    workers: how many; None for one a GPU, or where there is none one a machine
    gpus_per_worker: None for one where there is any
    address: of a cluster that runs; None starts one on this machine
    """

    workers: int | None = None
    gpus_per_worker: float | None = None
    address: str | None = None


class EmbedWorker:
    """What Ray runs: a model that stays loaded, given parts a task at a time.

    What is wrong with the input is told in the answer, since Ray would wrap an error in its own words and try again.
    """

    def __init__(self, plan: EmbedPlan, out: str, device: str, batch_size: int | None, threads: int) -> None:
        from diptych.search.filling.embed_parts import PartsEmbedder

        self._error = ""
        self._rate: float | None = None
        try:
            self._embedder = PartsEmbedder.load(
                plan, PartsFolder(out), device, batch_size=batch_size, threads=threads, cores=threads
            )
        except DiptychError as error:
            self._error = str(error)

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[Any]]:
        """Embed and write the parts of a task; the numbers of each."""
        rows = [self._embed(int(n), str(told)) for n, told in zip(batch["number"], batch["part"], strict=True)]
        return {name: [row[name] for row in rows] for name in rows[0]}

    def _embed(self, number: int, told: str) -> dict[str, Any]:
        row = {"number": number, "entries": 0, "bad": 0, "seconds": 0.0, "rate": math.nan, "error": self._error}
        row["worker"] = f"{socket.gethostname()}:{os.getpid()}"
        if self._error:
            return row
        part = PlanPart.read(number, json.loads(told))
        # Ray starts workers again, and gives them what they were at, without end.
        if len(self._embedder.folder.left_behind(part.name)) >= RETRIES:
            return row | {"error": f"{part.name}: ended {RETRIES} workers that were at it, maybe for want of memory"}
        started = time.perf_counter()
        try:
            (done,) = self._embedder.embed([part])
        except DiptychError as error:
            return row | {"error": str(error)}
        seconds = time.perf_counter() - started
        if self._rate is None:
            self._rate = self._embedder.model_rate()
        rate = math.nan if self._rate is None else self._rate
        return row | {"entries": done.entries, "bad": done.bad, "seconds": seconds, "rate": rate}


class RayEngine:
    """A pool of workers of Ray Data."""

    def __init__(
        self, plan: EmbedPlan, folder: PartsFolder, pool: RayPool, batch_size: int | None, threads: int | None
    ) -> None:
        self._plan = replace(plan, parts=())  # workers are told their own
        self._folder = folder
        self._pool = pool
        self._batch_size = batch_size
        self._threads = threads
        self._size = 0
        self._items = 0
        self._seconds = 0.0  # of all workers
        self._rates: dict[str, float] = {}  # of the model alone, by worker

    def embed(self, parts: Sequence[PlanPart], advance: Callable[[int], None]) -> "Iterator[PartDone]":
        """Parts as workers finish them."""
        from diptych.search.filling.embed_parts import PartDone

        with _cluster(self._pool.address) as ray:
            for row in self._dataset(ray, parts).iter_rows():
                if row["error"]:
                    raise DiptychError(row["error"])
                done = PartDone(row["number"], row["entries"], row["bad"])
                self._items += done.entries + done.bad
                self._seconds += row["seconds"]
                if not math.isnan(row["rate"]):
                    self._rates[row["worker"]] = row["rate"]
                advance(done.entries + done.bad)
                yield done

    def speed(self) -> "Speed":
        """All workers together, while they were at their parts."""
        from diptych.search.filling.embed_engine import Speed

        # A worker that was started again counts once, so means are taken over what was done.
        rate = self._size * self._items / max(self._seconds, 1e-9)
        return Speed(rate, self._size * sum(self._rates.values()) / len(self._rates) if self._rates else None)

    def _dataset(self, ray: Any, parts: Sequence[PlanPart]) -> Any:
        self._size, gpus, threads = self._sizes(ray, len(parts))
        rows = [{"number": part.number, "part": json.dumps(part.to_json(), ensure_ascii=False)} for part in parts]
        device = "cuda" if gpus else "cpu"
        return ray.data.from_items(rows, override_num_blocks=min(len(rows), MOST_TASKS)).map_batches(
            EmbedWorker,
            fn_constructor_args=(self._plan, self._folder.address, device, self._batch_size, threads),
            batch_size=1,
            compute=ray.data.ActorPoolStrategy(size=self._size, max_tasks_in_flight_per_actor=1 + WAITING),
            num_gpus=gpus or None,
            num_cpus=None if gpus else threads,
        )

    def _sizes(self, ray: Any, parts: int) -> tuple[int, float, int]:
        """How many workers, no more than there are parts, and the GPUs and threads of each."""
        there = ray.cluster_resources()
        machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        gpus = self._pool.gpus_per_worker
        if gpus is None:
            gpus = 1.0 if there.get("GPU") else 0.0
        size = self._pool.workers or (int(there.get("GPU", 0) // gpus) if gpus else len(machines))
        if gpus * size > there.get("GPU", 0) or size < 1:
            raise DiptychError(
                f"{max(1, size)} workers of {gpus:g} GPUs each are wanted, and Ray has {there.get('GPU', 0):g}; "
                "see --workers and --gpus-per-worker"
            )
        cores = int(there.get("CPU", 1))
        if not gpus and size > cores:
            raise DiptychError(f"{size} workers are wanted, and Ray has {cores} cores; see --workers")
        size = min(size, parts)
        # Machines may differ: what the smallest of them can give each of its workers.
        smallest = int(min(machine.get("CPU", 1) for machine in machines))
        threads = self._threads or max(1, smallest // math.ceil(size / len(machines)))
        return size, gpus, min(threads, max(1, smallest))


@contextmanager
def _cluster(address: str | None) -> Iterator[Any]:
    """Ray, quiet: one that this process is connected to already, the one at an address, or one of this machine."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    try:
        import ray
        import ray.data
    except ImportError:
        raise DiptychError("--engine ray: needs the package ray; install diptych[ray]") from None
    own = not ray.is_initialized()
    if own:
        _check_address(address)
        where = {"address": address} if address else {"include_dashboard": False}
        try:
            ray.init(**where, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise DiptychError(f"Ray cannot be reached: {str(error).partition(chr(10))[0]}", where=address) from None
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    context.enable_auto_log_stats = False
    context.max_consecutive_actor_init_deaths = RETRIES
    context.execution_no_progress_timeout_s = -1  # a part may take as long as it takes
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    try:
        yield ray
    finally:
        if own:
            ray.shutdown()


def _check_address(address: str | None) -> None:
    """See that somebody listens at host:port; Ray itself would try for minutes."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if not port.isdecimal():
        return
    try:
        socket.create_connection((host, int(port)), PATIENCE).close()
    except (OSError, OverflowError) as error:
        raise DiptychError(f"Ray cannot be reached: {error}", where=address) from None
