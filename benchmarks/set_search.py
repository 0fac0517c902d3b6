"""Sets of vectors on a Qdrant server: what its graph over their means finds of what an exact search finds.

    python benchmarks/set_search.py                         50,000 sets of 4 vectors of 64, in clusters
    python benchmarks/set_search.py --scatter               the same without any structure
    python benchmarks/set_search.py --set-size 1            single vectors
    python benchmarks/set_search.py --address qdrant://host:port/name

The server is started as the tests do, unless one is given. Entries are named by the product of the means of their sets
(an HNSW graph over int8 numbers), the best of those by MAX_SIM in the server, and these are scored exactly; the share
of the exact ten best that is found is measured for other queries than those of the store, at every depth. Then
`prepare` decides as it does for anyone. One JSON object at the end.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))  # for the tests' server

from tests.search.stores import qdrant_server

from diptych.search.stores import qdrant_index
from diptych.search.stores.qdrant_store import QdrantStore
from diptych.search.stores.store import Entry, Layout, Stamp

BATCH = 2000


def main() -> None:
    args = arguments()
    if args.address:
        print(json.dumps(measure(args, args.address)))
        return
    with tempfile.TemporaryDirectory() as folder:
        process, port = qdrant_server.start(Path(folder))
        try:
            print(json.dumps(measure(args, f"qdrant://127.0.0.1:{port}/benchmark")))
        finally:
            qdrant_server.stop(process)


def made_up(args: argparse.Namespace, count: int, seed: int) -> np.ndarray:
    """Sets (count, K, d) of unit vectors: a centre, what an entry has of its own, and what each element has."""
    rng = np.random.default_rng(seed)
    sets = rng.standard_normal((count, args.set_size, args.dim), dtype=np.float32)
    if not args.scatter:
        centres = np.random.default_rng(99).standard_normal((2000, 1, args.dim), dtype=np.float32)
        own = rng.standard_normal((count, 1, args.dim), dtype=np.float32)
        sets = centres[rng.integers(0, len(centres), count)] + 0.7 * own + 0.7 * sets
    return sets / np.linalg.norm(sets, axis=-1, keepdims=True)


def measure(args: argparse.Namespace, address: str) -> dict[str, Any]:
    store = QdrantStore(address, Layout(args.dim, args.set_size), exact_up_to=0, patience=300)
    vectors, queries = made_up(args, args.count, 0), made_up(args, args.queries, 1)
    begin = time.perf_counter()
    for start in range(0, args.count, BATCH):
        store.add([entry_of(i, vectors[i]) for i in range(start, min(args.count, start + BATCH))])
    result: dict[str, Any] = {**vars(args), "entries/s": args.count / (time.perf_counter() - begin)}
    result["exact_ms"] = milliseconds(lambda query: store.search(query, 10), queries[:5])
    told: list[float] = []
    share = qdrant_index.recall_of_hits

    def heard(*found: Any) -> float:
        told.append(share(*found))
        return told[-1]

    qdrant_index.recall_of_hits = heard
    begin = time.perf_counter()
    store.prepare(queries)
    result |= {"prepare_s": time.perf_counter() - begin, "recalls": told, "used": store.recall}
    if store.recall is not None:
        result["quick_ms"] = milliseconds(lambda query: store.search(query, 10), queries[:40])
    info = store._server.info(store._server.name)
    result["indexed"] = getattr(info, "indexed_vectors_count", None)
    store.close()
    return result


def entry_of(number: int, vectors: np.ndarray) -> Entry:
    key = f"photos/{number // 5000:05d}/IMG_{number:08d}.jpg"
    stamp = Stamp(key, 2_000_000 + number, 1_700_000_000_000_000_000 + number, f"{number:032x}")
    return Entry(key, "picture", vectors, stamp, metadata={"year": 2000 + number % 25})


def milliseconds(search: Callable[[np.ndarray], Any], queries: np.ndarray) -> float:
    """The median of one query at a time."""
    times = []
    for i in range(len(queries)):
        begin = time.perf_counter()
        search(queries[i : i + 1])
        times.append(1000 * (time.perf_counter() - begin))
    return statistics.median(times)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=50_000)
    parser.add_argument("--set-size", type=int, default=4)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--queries", type=int, default=64)
    parser.add_argument("--scatter", action="store_true", help="vectors without any structure")
    parser.add_argument("--address", help="qdrant://host:port/name; by default a server is started")
    return parser.parse_args()


if __name__ == "__main__":
    main()
