"""Recall of 5,000 pictures x 25,000 sentences at d = 1024: ours beside the argsort loops that the field uses.

    python benchmarks/recall.py [--images 5000] [--dim 1024] [--threads 2] [--only NAME] [--json]

Each way runs in a process of its own, from the same float32 vectors on disk, and reports seconds and the peak of its
memory above what it held when the vectors were loaded. The loops are written here from the protocol, as they stand in
the published code of VSE++, SCAN and VSE∞: vectors gathered in float64, one product, and an argsort a query. The same
loops on float32 vectors are measured too, since nothing but habit makes them float64.
"""

import argparse
import ctypes
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

WAYS = ["ours", "field", "field-float32"]


def make(folder: Path, images: int, dim: int) -> None:
    import numpy as np

    rng = np.random.default_rng(0)
    v = rng.standard_normal((images, dim), dtype=np.float32)
    s = v.repeat(5, 0) + 5 * rng.standard_normal((5 * images, dim), dtype=np.float32)
    for name, vectors in (("v", v), ("s", s)):
        np.save(folder / f"{name}.npy", vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


class Peak:
    """The most memory that this process held, watched every few milliseconds."""

    def __enter__(self) -> "Peak":
        self.before, self.most, self.over = resident(), 0, threading.Event()
        self.thread = threading.Thread(target=self._watch)
        self.thread.start()
        return self

    def _watch(self) -> None:
        while not self.over.wait(0.005):
            self.most = max(self.most, resident())

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join()
        self.above = max(self.most, resident()) - self.before


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def recalls(i2t, t2i):  # type: ignore[no-untyped-def]
    import numpy as np

    found = [100 * float(np.mean(np.asarray(ranks) < k)) for ranks in (i2t, t2i) for k in (1, 5, 10)]
    return [*found, sum(found)]


def field(v, s, dtype):  # type: ignore[no-untyped-def]
    """Rank by sorting, the way it is copied from paper to paper."""
    import numpy as np

    images = np.zeros((len(v), v.shape[1]), dtype=dtype)
    captions = np.zeros((len(s), s.shape[1]), dtype=dtype)
    images[:], captions[:] = v, s
    scores = np.matmul(images, captions.T)
    i2t = np.zeros(len(v))
    for index in range(len(v)):
        order = np.argsort(scores[index])[::-1]
        i2t[index] = min(np.where(order == j)[0][0] for j in range(5 * index, 5 * index + 5))
    t2i = np.zeros(len(s))
    turned = scores.T
    for index in range(len(v)):
        for j in range(5 * index, 5 * index + 5):
            order = np.argsort(turned[j])[::-1]
            t2i[j] = np.where(order == index)[0][0]
    return recalls(i2t, t2i)


def ours(v, s):  # type: ignore[no-untyped-def]
    from diptych.evaluation.evaluate import evaluate_embeddings
    from diptych.evaluation.figures import RECALLS

    found = evaluate_embeddings(v, s, similarity="dot")
    return [*(found[key] for key in RECALLS), found["rsum"]]


def one(way: str, folder: Path, threads: int) -> None:
    import numpy as np

    import diptych.evaluation.evaluate  # imported before the clock starts

    del diptych
    import torch

    torch.set_num_threads(threads)
    v, s = np.load(folder / "v.npy"), np.load(folder / "s.npy")
    (v[:64] @ s[:64].T).sum()  # the products' thread pools exist before the clock starts
    torch.mm(torch.from_numpy(v[:64]), torch.from_numpy(s[:64]).T)
    ctypes.CDLL(None).malloc_trim(0)
    start, cpu = time.perf_counter(), time.process_time()
    with Peak() as peak:
        figures = ours(v, s) if way == "ours" else field(v, s, np.float64 if way == "field" else np.float32)
    result = {"seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - cpu}
    print(json.dumps(result | {"bytes_above": peak.above, "recalls": figures}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=5000)
    parser.add_argument("--dim", type=int, default=1024)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=1, help="the fastest of so many runs of each counts")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--one", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        one(options.one, options.folder, options.threads)
        return
    results = {}
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    environment = os.environ | dict.fromkeys(names, str(options.threads))
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder), options.images, options.dim)
        for way in WAYS:
            command = [sys.executable, __file__, "--one", way, "--folder", folder, "--threads", str(options.threads)]
            runs = [
                json.loads(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)
                for _ in range(options.repeats)
            ]
            results[way] = min(runs, key=lambda run: run["seconds"])
    if options.json:
        print(json.dumps(results))
        return
    base = results["ours"]
    print(
        f"{options.images:,} pictures x {5 * options.images:,} sentences, d = {options.dim}, {options.threads} threads"
    )
    print(f"{'':14}{'seconds':>9}{'CPU s':>9}{'GB above':>10}{'times ours':>12}{'rsum':>9}")
    for way, result in results.items():
        print(
            f"{way:14}{result['seconds']:9.2f}{result['cpu_seconds']:9.2f}{result['bytes_above'] / 1e9:10.3f}"
            f"{result['seconds'] / base['seconds']:12.1f}{result['recalls'][-1]:9.2f}"
        )


if __name__ == "__main__":
    main()
