"""Every store side by side: building, memory, disk, recall and latency, at rest and while entries come and go.

    python benchmarks/million.py                                 1,000,000 vectors of 256, every engine
    python benchmarks/million.py --count 50000 --engines exact ivf hnsw pq
    python benchmarks/million.py --table FILE                    the table again, from what a run saved

The engines run one after the other, each stage in a process of its own, and what each gave is saved at once: after an
interruption the same command goes on with the engines that are missing (`--again` begins anew). What cannot run here
is left out, with a word. Vectors are made up (benchmarks/made_vectors.py); the queries are others of the same kind,
and the exact answers are computed once, by a plain product.

Recall is the share of the exact ten best that ten results hold. Latency is that of one query after another from
one thread, then again while a second thread of the same process adds 50 entries and deletes 50, twenty times a second.
Memory is the most that a process held of its own at any moment, without mapped files; that of a server is its
processes' own. A server shares the cores with the client that asks it, as it would on this machine.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))  # for the tests' servers

import faiss  # noqa: F401, loaded before any clock starts

from diptych.common.files import write_json
from diptych.search.stores.address import open_store
from diptych.search.stores.settings import VectorSettings
from diptych.search.stores.sqlite_vectors import SqliteVectors  # noqa: F401, as is torch
from diptych.search.stores.store import Entry, Layout, Stamp, Store
from made_vectors import BATCH, MadeVectors  # type: ignore[import-not-found]

NAMES = {
    "exact": "SQLite, exact",
    "ivf": "SQLite + FAISS IVF",
    "hnsw": "SQLite + FAISS HNSW",
    "pq": "SQLite + FAISS PQ",
    "qdrant": "Qdrant",
    "milvus": "Milvus",
}
TOP, WARM_UP = 10, 20
CHANGED_AT_ONCE, BETWEEN_CHANGES = 50, 0.05


def main() -> None:
    args = arguments()
    if args.table:
        print(table(json.loads(args.table.read_text())))
        return
    if args.stage:
        print(json.dumps(STAGES[args.stage](args)))
        return
    args.folder.mkdir(parents=True, exist_ok=True)
    place = args.folder / "results.json"
    about = {"count": args.count, "dim": args.dim, "queries": args.queries, "memory": args.memory}
    results: dict[str, Any] = {"about": about, "engines": {}}
    if place.exists() and not args.again:
        saved = json.loads(place.read_text())
        if saved["about"] != about:
            sys.exit(f"{place}: of another run, {saved['about']}; --again begins anew, --folder takes another place")
        results = saved
    truth(args)
    for engine in args.engines:
        if engine in results["engines"]:
            continue
        print(f"{NAMES[engine]} …", file=sys.stderr, flush=True)
        try:
            results["engines"][engine] = measured(args, engine)
        except RuntimeError as error:
            print(f"{NAMES[engine]} is left out: {error}", file=sys.stderr)
            continue
        write_json(place, results)
    if not args.keep:
        for file in args.folder.glob("index.db*"):
            file.unlink()
    print(table(results))
    print(f"saved in {place}", file=sys.stderr)


def measured(args: argparse.Namespace, engine: str) -> dict[str, Any]:
    """Build and search in processes of their own."""
    if engine in ("qdrant", "milvus"):
        with server(engine, args.folder) as (address, process, folder):
            command = ["--address", address, "--server", str(process)]
            built = stage(args, "build", engine, command)
            searched = stage(args, "search", engine, command)
            disk = sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
        return built | searched | {"disk": disk}
    place = args.folder / "index.db"
    filled = args.folder / "filled.json"
    command = ["--address", str(place)]
    if not filled.exists() or not place.exists():  # one file for all kinds
        for file in args.folder.glob("index.db*"):
            file.unlink()
        write_json(filled, stage(args, "fill", engine, command))
    built = stage(args, "build", engine, command)
    built = together(json.loads(filled.read_text()), built)
    searched = stage(args, "search", engine, command)
    left_out = ".approximate" if engine == "exact" else "none"
    disk = sum(p.stat().st_size for p in args.folder.glob("index.db*") if not p.name.endswith(left_out))
    return built | searched | {"disk": disk}


def stage(args: argparse.Namespace, name: str, engine: str, more: list[str]) -> dict[str, Any]:
    """One stage in a process of its own."""
    command = [sys.executable, __file__, "--stage", name, "--engines", engine, *more, "--folder", str(args.folder)]
    for option in ("count", "dim", "queries", "seconds", "memory"):
        command += [f"--{option}", str(getattr(args, option))]
    answer = subprocess.run(command, stdout=subprocess.PIPE, check=False, text=True)
    if answer.returncode:
        raise RuntimeError(f"its stage {name!r} ended with status {answer.returncode}")
    found: dict[str, Any] = json.loads(answer.stdout)
    said = ", ".join(f"{key} {value:.4g}" for key, value in found.items() if isinstance(value, int | float))
    print(f"  {name}: {said}", file=sys.stderr, flush=True)
    return found


@contextmanager
def server(engine: str, folder: Path) -> Iterator[tuple[str, int, Path]]:
    """A server of its own: its address, the process that runs it, and where its data is."""
    try:
        if engine == "milvus":
            from tests.search.stores import milvus_server as kind
        else:
            from tests.search.stores import qdrant_server as kind  # type: ignore[attr-defined, no-redef]
    except ImportError:
        raise RuntimeError("there is no server for it here") from None
    data = Path(tempfile.mkdtemp(dir=folder)) / "data"
    try:
        process, port = kind.start(data, 0)
        try:
            yield f"{engine}://127.0.0.1:{port}/million", process.pid, data
        finally:
            kind.stop(process)
    finally:
        shutil.rmtree(data.parent, ignore_errors=True)


def opened(args: argparse.Namespace, layout: Layout | None = None) -> Store:
    """The store of a stage: exact, or approximate from the first vector on."""
    exact = args.count * 10 if args.engines == ["exact"] else 1000
    return open_store(args.address, layout, exact_up_to=exact, patience=600)


def fill(args: argparse.Namespace) -> dict[str, Any]:
    """Make the store and add everything."""
    with Watch(args.server) as watch:
        store = opened(args, Layout(args.dim))
        seconds = 0.0
        for number, block in enumerate(MadeVectors(args.dim).blocks(args.count)):
            some = entries(block, number * BATCH)
            begin = time.perf_counter()
            store.add(some)
            seconds += time.perf_counter() - begin
        store.close()
    return {"build_s": seconds, "build_memory": watch.own, "build_server": watch.server}


def build(args: argparse.Namespace) -> dict[str, Any]:
    """Prepare the store; one on a server is filled first."""
    before = fill(args) if args.server else {}
    with Watch(args.server) as watch:
        store = opened(args)
        if not args.server:
            kind = {} if args.engines == ["exact"] else {"kind": args.engines[0]}
            store.set_properties(VectorSettings(memory=args.memory, **kind).properties())
        begin = time.perf_counter()
        store.prepare()
        seconds = time.perf_counter() - begin
        store.close()
    return together(before, {"build_s": seconds, "build_memory": watch.own, "build_server": watch.server})


def together(filled: dict[str, Any], prepared: dict[str, Any]) -> dict[str, Any]:
    """Both parts of building: seconds are added, of memory the most counts."""
    added = {"build_s": filled.get("build_s", 0) + prepared["build_s"]}
    return {key: max(value, filled.get(key, 0)) for key, value in prepared.items()} | added


def search(args: argparse.Namespace) -> dict[str, Any]:
    """Open, ask one query after the other, then again while entries come and go."""
    known = np.load(args.folder / "truth.npz")
    queries, wanted = known["queries"][:, None], known["best"]
    opened(args).close()  # a client's library is loaded before the clock starts
    with Watch(args.server) as watch:
        begin = time.perf_counter()
        store = opened(args)
        first = store.search(queries[:1], TOP)
        opening = time.perf_counter() - begin
        for i in range(WARM_UP):
            store.search(queries[i : i + 1], TOP)
        found: list[list[str]] = []
        times = asked(store, queries, args.seconds, found.append)
        changes = Changes(store, args)
        while_changing = asked(store, queries, args.seconds, lambda _: None)
        changed = changes.stop()
        store.close()
    hits = [len({key_of(i) for i in own} & set(keys)) for own, keys in zip(wanted.tolist(), found, strict=False)]
    return {
        "first_ms": 1000 * opening,
        "exact": first.exact,
        "recall": float(np.mean(hits)) / TOP,
        "asked": len(times),
        "p50_ms": 1000 * float(np.percentile(times, 50)),
        "p99_ms": 1000 * float(np.percentile(times, 99)),
        "changing_p50_ms": 1000 * float(np.percentile(while_changing, 50)),
        "changing_p99_ms": 1000 * float(np.percentile(while_changing, 99)),
        "changed_per_s": changed,
        "search_memory": watch.own,
        "search_server": watch.server,
    }


STAGES: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {"fill": fill, "build": build, "search": search}


def asked(store: Store, queries: np.ndarray, seconds: float, told: Callable[[list[str]], None]) -> list[float]:
    """Seconds of each query, one after the other, until all are asked or time is up."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    for query in queries:
        begin = time.perf_counter()
        hits = store.search(query[None], TOP).hits[0]
        times.append(time.perf_counter() - begin)
        told([hit.key for hit in hits])
        if time.perf_counter() > end:
            break
    return times


class Changes:
    """A thread that adds entries and deletes those it added before."""

    def __init__(self, store: Store, args: argparse.Namespace) -> None:
        self.store, self.args, self.done = store, args, threading.Event()
        self.count, self.error, self.begin = 0, "", time.perf_counter()
        self.thread = threading.Thread(target=self._change)
        self.thread.start()

    def _change(self) -> None:
        made, before = MadeVectors(self.args.dim), list[str]()
        number = 2 * self.args.count
        try:
            while not self.done.wait(BETWEEN_CHANGES):
                new = entries(made.some(CHANGED_AT_ONCE, [2, number]), number)
                self.store.add(new)
                self.store.delete(before)
                self.count += len(new) + len(before)
                before = [entry.key for entry in new]
                number += CHANGED_AT_ONCE
            self.store.delete(before)
        except Exception as error:  # told by the main thread
            self.error = str(error)

    def stop(self) -> float:
        """Entries added or deleted in a second."""
        self.done.set()
        self.thread.join()
        if self.error:
            raise SystemExit(f"adding and deleting failed: {self.error}")
        return self.count / (time.perf_counter() - self.begin)


def truth(args: argparse.Namespace) -> None:
    """The exact ten best of each query, by a plain product over all vectors, computed once."""
    place = args.folder / "truth.npz"
    made = MadeVectors(args.dim)
    queries = made.some(args.queries, [1, 0])
    if place.exists() and not args.again:
        known = np.load(place)
        if np.array_equal(known["queries"], queries) and int(known["count"]) == args.count:
            return
    print("the exact answers …", file=sys.stderr, flush=True)
    for old in args.folder.glob("filled.json"):
        old.unlink()
    best, scores = np.zeros((len(queries), 0), np.int64), np.zeros((len(queries), 0), np.float32)
    for number, block in enumerate(made.blocks(args.count)):
        scores = np.concatenate([scores, queries @ block.T], 1)
        numbers = np.arange(number * BATCH, number * BATCH + len(block))
        best = np.concatenate([best, np.broadcast_to(numbers, (len(queries), len(block)))], 1)
        top = np.argpartition(-scores, min(TOP, scores.shape[1]) - 1, axis=1)[:, :TOP]
        scores, best = np.take_along_axis(scores, top, 1), np.take_along_axis(best, top, 1)
    np.savez(place, queries=queries, best=best, count=args.count)


def key_of(number: int) -> str:
    """A path; the numbers' order is the order in which a folder is walked."""
    return f"photos/{number // 5000:05d}/IMG_{number:08d}.jpg"


def entries(vectors: np.ndarray, first: int) -> list[Entry]:
    """Pictures with made-up vectors (n, d)."""
    made = []
    for number, vector in enumerate(vectors, first):
        stamp = Stamp(key_of(number), 2_000_000 + number, 1_700_000_000_000_000_000 + number, f"{number:032x}")
        made.append(Entry(stamp.key, "picture", vector[None], stamp, metadata={"year": 2000 + number % 25}))
    return made


class Watch:
    """Looks ten times a second at the memory of this process and of a server's: the most bytes of their own."""

    def __init__(self, process: int | None) -> None:
        self.process, self.own, self.server = process, 0, 0
        self.done = threading.Event()
        self.thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> "Watch":
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.done.set()
        self.thread.join()

    def _look(self) -> None:
        while True:
            self.own = max(self.own, own_memory("self"))
            if self.process:
                self.server = max(self.server, sum(own_memory(p) for p in family(self.process)))
            if self.done.wait(0.1):
                return


def own_memory(process: int | str) -> int:
    """Bytes that are a process's own."""
    with suppress(OSError):
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    return 0


def family(process: int) -> list[int]:
    """A process and all that it started."""
    found = [process]
    for parent in found:
        with suppress(OSError):
            for task in Path(f"/proc/{parent}/task").iterdir():
                found += [int(child) for child in (task / "children").read_text().split()]
    return found


def table(results: dict[str, Any]) -> str:
    """The results as a table for people and for the documentation."""
    about = results["about"]
    lines = [
        f"{about['count']:,} vectors of {about['dim']}, up to {about['queries']:,} queries, memory setting "
        f"{about['memory'] / 1e6:.0f} MB:",
        "",
        "| | build | memory building | memory searching | its server's | disk | recall@10 | open and first answer | "
        "p50 | p99 | p50, p99 while changing | changes |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for engine, got in results["engines"].items():
        server_memory = max(got["build_server"], got["search_server"])
        cells = [
            NAMES[engine],
            f"{got['build_s']:.0f} s",
            size(got["build_memory"]),
            size(got["search_memory"]),
            size(server_memory) if server_memory else "",
            size(got["disk"]),
            f"{got['recall']:.3f}",
            f"{got['first_ms']:.0f} ms",
            f"{got['p50_ms']:.1f} ms",
            f"{got['p99_ms']:.1f} ms",
            f"{got['changing_p50_ms']:.1f}, {got['changing_p99_ms']:.1f} ms",
            f"{got['changed_per_s']:.0f} /s",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def size(count: float) -> str:
    """Bytes for people."""
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--engines", nargs="+", choices=list(NAMES), default=list(NAMES))
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=20, help="for each measurement of latency, at most")
    parser.add_argument("--memory", type=int, default=1 << 30, help="bytes for preparing and searching a file")
    parser.add_argument("--folder", type=Path, help="where to work and save; by default in the system's for such")
    parser.add_argument("--again", action="store_true", help="begin anew")
    parser.add_argument("--keep", action="store_true", help="leave the index in a file where it is")
    parser.add_argument("--table", type=Path, help="print the table of a results.json, and nothing else")
    parser.add_argument("--stage", choices=STAGES, help=argparse.SUPPRESS)
    parser.add_argument("--address", help=argparse.SUPPRESS)
    parser.add_argument("--server", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.folder is None:
        args.folder = Path(tempfile.gettempdir()) / f"diptych-million-{args.count}x{args.dim}"
    return args


if __name__ == "__main__":
    main()
