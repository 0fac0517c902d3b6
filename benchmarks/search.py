"""Stores with made-up vectors: speed beside FAISS and Milvus in one run, and memory and disk at several sizes.

    python benchmarks/search.py                             100,000 x 512 beside FAISS and a plain torch product
    python benchmarks/search.py --milvus here               beside a Milvus server too, started as the tests do
    python benchmarks/search.py --milvus milvus://host:port/name
    python benchmarks/search.py --sizes                     memory and disk of indexing, preparing and searching at
                                                            10,000, 1,000,000 and 10,000,000 vectors of 16
    python benchmarks/search.py --sizes 10000 100000 400000 --dim 512

The contenders take turns, so that whatever else the machine does meets all of them alike; the ratios are those of
the medians. With OMP_NUM_THREADS=1 the core-milliseconds hardly depend on the rest of the machine at all. Vectors lie
in clusters, as those of pictures do; `--scatter` spreads them evenly instead. Each stage at each size is a process of
its own: the most memory of its own that it ever held is told apart from the peak with the files that are mapped into
it, which the system takes back when it needs to. One JSON object at the end.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))  # for the tests' server

from diptych.search.stores.address import open_store
from diptych.search.stores.store import Entry, Layout, Stamp, Store

BATCH = 5000
STAGES = ("index", "prepare", "search")
SIZES = (10_000, 1_000_000, 10_000_000)


def main() -> None:
    args = arguments()
    if args.stage:
        print(json.dumps(stage(args)))
        return
    folder = Path(tempfile.mkdtemp(dir=args.folder))
    try:
        result = sizes(args, folder) if args.sizes else speed(args, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(result))


def made_up(args: argparse.Namespace, count: int, seed: int = 0) -> Iterator[np.ndarray]:
    """Unit vectors (up to 5000, d) at a time."""
    centres = np.random.default_rng(99).standard_normal((2000, args.dim)).astype(np.float32)
    for start in range(0, count, BATCH):
        rng = np.random.default_rng([seed, start])
        size = min(BATCH, count - start)
        vectors = rng.standard_normal((size, args.dim), dtype=np.float32)
        if not args.scatter:
            vectors = centres[rng.integers(0, len(centres), size)] + 0.7 * vectors
        yield vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def key_of(number: int) -> str:
    """A path; the numbers' order is the order in which a folder is walked."""
    return f"photos/{number // 5000:05d}/IMG_{number:08d}.jpg"


def fill(store: Store, args: argparse.Namespace, count: int) -> float:
    """Add made-up pictures; seconds spent in the store."""
    spent, number = 0.0, 0
    for block in made_up(args, count):
        entries = []
        for vector in block:
            key = key_of(number)
            stamp = Stamp(key, 2_000_000 + number, 1_700_000_000_000_000_000 + number, f"{number:032x}")
            entries.append(Entry(key, "picture", vector[None], stamp, metadata={"year": 2000 + number % 25}))
            number += 1
        begin = time.perf_counter()
        store.add(entries)
        spent += time.perf_counter() - begin
    return spent


def speed(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    import faiss
    import torch

    layout, path = Layout(args.dim), folder / "index.diptych"
    store = open_store(path, layout)
    added = fill(store, args, args.count)
    begin = time.perf_counter()
    store.prepare()
    prepared = time.perf_counter() - begin
    store.close()
    queries = np.concatenate(list(made_up(args, 256, seed=1)))[:, None]
    begin = time.perf_counter()
    store = open_store(path)
    store.search(queries[:1], 10)
    opened = time.perf_counter() - begin
    matrix = np.concatenate(list(made_up(args, args.count)))
    flat = faiss.IndexFlatIP(args.dim)
    flat.add(matrix)
    tensor = torch.from_numpy(matrix)
    threads = {"torch": torch.get_num_threads(), "faiss": faiss.omp_get_max_threads()}
    print(f"{args.count:,} x {args.dim}, threads {threads}, load {os.getloadavg()[0]:.1f}", file=sys.stderr)
    print(
        f"added {args.count / added:,.0f} entries/s, prepared in {prepared:.2f} s, "
        f"opened and searched once in {1000 * opened:.0f} ms",
        file=sys.stderr,
    )
    contenders: dict[str, Callable[[np.ndarray], Any]] = {
        "diptych": lambda q: store.search(q, 10),
        "faiss flat": lambda q: flat.search(q[:, 0], 10),
        "torch product": lambda q: (torch.from_numpy(q[:, 0]) @ tensor.T).topk(10),
    }
    result: dict[str, Any] = {"count": args.count, "dim": args.dim, "entries/s": args.count / added, "open_s": opened}
    with milvus(args, folder) as server:
        if server is not None:
            there = open_store(server, layout)
            if there.count() == 0:
                result["milvus entries/s"] = args.count / fill(there, args, args.count)
            contenders["milvus"] = lambda q: there.search(q, 10)
            agree(store, there, queries[:20])
        for size in (1, 256):
            result[f"batch {size}"] = race(contenders, queries, size, args.rounds)
    exact = {h.key for h in store.search(queries[:1], 10).hits[0]}
    wanted = {key_of(i) for i in flat.search(queries[0], 10)[1][0].tolist()}
    result["same as faiss"] = exact == wanted
    return result


def race(contenders: dict[str, Callable[[np.ndarray], Any]], queries: np.ndarray, size: int, rounds: int) -> Any:
    """Milliseconds a call, by the clock and of all cores, each contender in turn, with other queries every round."""
    rounds = rounds if size == 1 else max(3, rounds // 4)
    times: dict[str, list[float]] = {name: [] for name in contenders}
    cores: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(rounds + 1):
        batch = np.ascontiguousarray(np.roll(queries, turn, axis=0)[:size])
        for name, call in contenders.items():
            begin, used = time.perf_counter(), time.process_time()
            call(batch)
            if turn:  # the first is for warming up
                times[name].append(1000 * (time.perf_counter() - begin))
                cores[name].append(1000 * (time.process_time() - used))
    middle = {name: statistics.median(found) for name, found in times.items()}
    work = {name: statistics.median(found) for name, found in cores.items()}
    for name, value in middle.items():
        ratio = value / middle["faiss flat"]
        best = f"(best {min(times[name]):.2f})"
        print(
            f"batch {size:3d}  {name:14s} {value:9.2f} ms {best:14s}  {ratio:6.2f} x faiss  {work[name]:9.2f} core-ms",
            file=sys.stderr,
        )
    return {"median_ms": middle, "best_ms": {name: min(found) for name, found in times.items()}, "core_ms": work}


def agree(one: Store, other: Store, queries: np.ndarray) -> None:
    """Both stores are exact, so they must say the same."""
    a, b = one.search(queries, 10), other.search(queries, 10)
    for left, right in zip(a.hits, b.hits, strict=True):
        if max(abs(x.score - y.score) for x, y in zip(left, right, strict=True)) > 1e-5:
            raise SystemExit("the two stores do not find the same")


class milvus:  # noqa: N801, reads as a with statement does
    """The address of a Milvus store: given, on a server of its own, or none."""

    def __init__(self, args: argparse.Namespace, folder: Path) -> None:
        self.given, self.folder = args.milvus, folder / "milvus"
        self.process: Any = None

    def __enter__(self) -> str | None:
        if self.given != "here":
            return str(self.given) if self.given else None
        from tests.search.stores import milvus_server

        self.process, port = milvus_server.start(self.folder)
        return f"milvus://127.0.0.1:{port}/benchmark"

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            from tests.search.stores import milvus_server

            milvus_server.stop(self.process)


def sizes(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Memory and disk at several sizes, and what they come to for a million."""
    result: dict[str, Any] = {}
    print("   entries  stage     seconds  own memory, most  with mapped files  what", file=sys.stderr)
    for count in args.sizes:
        place = folder / f"{count}.diptych"
        found: dict[str, Any] = {}
        for name in args.stages:
            command = [sys.executable, __file__, "--stage", name, "--path", str(place), "--count", str(count)]
            command += ["--dim", str(args.dim), *(["--scatter"] if args.scatter else [])]
            answer = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
            found[name] = got = json.loads(answer.stdout)
            memory_used = f"{got['own_MiB']:12.0f} MiB  {got['peak_MiB']:13.0f} MiB"
            print(f"{count:10,}  {name:8s} {got['seconds']:8.1f}  {memory_used}  {got['what']}", file=sys.stderr)
        disk = {p.name.replace(place.name, "") or "sqlite": p.stat().st_size for p in folder.glob(f"{place.name}*")}
        found["disk_GB_per_million"] = {name: round(size / count / 1000, 3) for name, size in disk.items()}
        total = sum(disk.values()) / count / 1000
        print(f"{count:10,}  disk for a million: {total:.2f} GB {found['disk_GB_per_million']}", file=sys.stderr)
        result[str(count)] = found
        for file in folder.glob(f"{place.name}*"):
            file.unlink()
    return result


def stage(args: argparse.Namespace) -> dict[str, Any]:
    """One stage in a process of its own; what is imported counts too."""
    watch = Watch()
    begin = time.perf_counter()
    if args.stage == "index":
        store = open_store(args.path, Layout(args.dim))
        what = f"{args.count / fill(store, args, args.count):,.0f} entries/s"
    elif args.stage == "prepare":
        store = open_store(args.path)
        store.prepare()
        what = f"recall {store.recall}"
    else:
        queries = np.concatenate(list(made_up(args, 40, seed=1)))[:, None]
        store = open_store(args.path)
        begin = time.perf_counter()
        store.search(queries[:1], 10)
        first = time.perf_counter() - begin
        times = []
        for i in range(40):
            start = time.perf_counter()
            found = store.search(queries[i : i + 1], 10)
            times.append(time.perf_counter() - start)
        exact = "exact" if found.exact else f"recall {found.recall:.3f}"
        what = f"first {1000 * first:.0f} ms, then {1000 * statistics.median(times):.2f} ms a query, {exact}"
    seconds = time.perf_counter() - begin
    own, peak = watch.stop()
    store.close()
    return {"seconds": seconds, "own_MiB": own, "peak_MiB": peak, "what": what}


class Watch:
    """Looks at the process's memory ten times a second."""

    def __init__(self) -> None:
        self.most, self.done = 0.0, threading.Event()
        self.thread = threading.Thread(target=self._look, daemon=True)
        self.thread.start()

    def _look(self) -> None:
        while not self.done.wait(0.1):
            self.most = max(self.most, self._now("RssAnon"))

    def _now(self, name: str) -> float:
        lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        return int(lines[name].split()[0]) / 1024

    def stop(self) -> tuple[float, float]:
        """The most MiB of the process itself, and together with the files mapped into it."""
        self.done.set()
        self.thread.join()
        return max(self.most, self._now("RssAnon")), self._now("VmHWM")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--dim", type=int, help="512, with --sizes 16")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--milvus", help="'here', or milvus://host:port/name")
    parser.add_argument("--sizes", type=int, nargs="*", help="measure memory and disk at these sizes instead")
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=STAGES, help="with --sizes, only these")
    parser.add_argument("--scatter", action="store_true", help="vectors without any structure")
    parser.add_argument("--folder", help="where to put the files meanwhile")
    parser.add_argument("--stage", choices=STAGES, help=argparse.SUPPRESS)
    parser.add_argument("--path", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.sizes == []:
        args.sizes = list(SIZES)
    if args.dim is None:
        args.dim = 512 if args.sizes is None else 16
    return args


if __name__ == "__main__":
    main()
