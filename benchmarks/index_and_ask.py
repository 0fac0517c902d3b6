"""A model at work: from a sentence to ten paths, and indexing a folder beside the bare model, in one run.

    python benchmarks/index_and_ask.py [--model NAME] [--entries N] [--pictures N] [--images FOLDER] [--rounds N]

Expected on two cores: from a sentence to ten paths under 60 ms (median) among 100,000 pictures, confidences included,
and indexing at least 80 % of the bare model's pictures per second. The 100,000 are made-up vectors; the pictures to
index are made-up JPEGs of 500 x 375 pixels, unless --images names others. The bare model has its pictures decoded and
prepared, and is given the better of two ways to use the cores; it and indexing take turns. One JSON object at the end.
"""

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch

from diptych.data.pictures import is_picture
from diptych.search.asking.unrelated_sentences import SENTENCES
from diptych.search.index import Index
from diptych.search.models.embedder import Embedder, load_embedder
from features import make_pictures

BATCH = 4


def asking(embedder: Embedder, entries: int, folder: Path) -> dict[str, Any]:
    """Milliseconds from a sentence to ten paths, and of each stage."""
    index = Index.create(folder / "asked.db", embedder)
    rng = np.random.default_rng(0)
    shape = embedder.layout.set_size, embedder.layout.dim
    centres = rng.standard_normal((2000, *shape), dtype=np.float32)
    for start in range(0, entries, 5000):
        some = range(start, min(start + 5000, entries))
        vectors = centres[rng.integers(0, 2000, len(some))]
        vectors = vectors + 0.7 * rng.standard_normal(vectors.shape, dtype=np.float32)
        index.add_vectors([f"photos/IMG_{i:08d}.jpg" for i in some], vectors)
    index.prepare()
    for text in SENTENCES[:5]:
        index.search(text)
    seconds, stages = list[float](), dict[str, list[float]]()
    for text in SENTENCES:
        begin = time.perf_counter()
        answer = index.search(f"{text} somewhere", 10)
        seconds.append(time.perf_counter() - begin)
        assert len(answer.results) == 10
        for name, value in answer.timings.items():
            stages.setdefault(name, []).append(value)
    index.close()
    middle = {name: 1000 * statistics.median(values) for name, values in stages.items()}
    told = ", ".join(f"{name} {value:.1f}" for name, value in middle.items() if name != "total")
    result = {"median_ms": 1000 * statistics.median(seconds), "p95_ms": 1000 * float(np.quantile(seconds, 0.95))}
    print(
        f"a sentence to ten of {entries:,} paths: median {result['median_ms']:.1f} ms, 95 % under "
        f"{result['p95_ms']:.1f} ms ({told})",
        file=sys.stderr,
    )
    return {**result, "best_ms": 1000 * min(seconds), "stages_ms": middle}


def bare(embedder: Embedder, pixels: Sequence[np.ndarray], workers: int) -> None:
    """The model alone on all pictures."""
    cores = os.cpu_count() or 1
    sizes = [(p.shape[1], p.shape[0]) for p in pixels]

    def one(start: int) -> None:
        torch.set_num_threads(max(1, cores // workers))
        embedder.embed_pixels(pixels[start : start + BATCH], sizes[start : start + BATCH])

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(one, range(0, len(pixels), BATCH)))


def indexing(embedder: Embedder, pictures: Path, rounds: int, folder: Path) -> dict[str, Any]:
    """Pictures per second of indexing beside the bare model's."""
    from PIL import Image

    files = sorted(path for path in pictures.rglob("*") if is_picture(path.name))
    pixels = [embedder.prepare(Image.open(path).convert("RGB")) for path in files]
    ways: dict[str, Callable[[int], None]] = {
        "indexing": lambda turn: fill(embedder, pictures, folder / f"{turn}.db", len(files)),
        "bare, all cores a batch": lambda _: bare(embedder, pixels, 1),
        "bare, a batch a core": lambda _: bare(embedder, pixels, os.cpu_count() or 1),
    }
    rates: dict[str, list[float]] = {name: [] for name in ways}
    costs: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(rounds + 1):
        for name, work in ways.items():
            begin, used = time.perf_counter(), time.process_time()
            work(turn)
            if turn:  # the first is for warming up
                rates[name].append(len(files) / (time.perf_counter() - begin))
                costs[name].append(1000 * (time.process_time() - used) / len(files))
    middle = {name: statistics.median(values) for name, values in rates.items()}
    cost = {name: statistics.median(values) for name, values in costs.items()}
    best = max(list(rates)[1:], key=lambda name: middle[name])
    ratios = [a / b for a, b in zip(rates["indexing"], rates[best], strict=True)]
    for name, rate in middle.items():
        print(f"{name:24s} {rate:7.1f} pictures/s {cost[name]:7.1f} core-ms a picture", file=sys.stderr)
    spread = f"{min(ratios):.0%} to {max(ratios):.0%}"
    print(f"indexing / {best}: {statistics.median(ratios):.0%} ({spread})", file=sys.stderr)
    return {"pictures/s": middle, "core_ms": cost, "ratio": statistics.median(ratios), "pictures": len(files)}


def fill(embedder: Embedder, pictures: Path, address: Path, count: int) -> None:
    """Index a folder, from its files to the store."""
    with Index.create(address, embedder) as index:
        report = index.sync(pictures)
        assert report.added == count, report.problems


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="default")
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--pictures", type=int, default=128)
    parser.add_argument("--images", type=Path, help="a folder of pictures in place of made ones")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    try:
        begin = time.perf_counter()
        embedder = load_embedder(args.model, "cpu")
        loaded = time.perf_counter() - begin
        print(f"{args.model}: loaded in {loaded:.2f} s, {torch.get_num_threads()} threads", file=sys.stderr)
        if args.images is None:
            (folder / "pictures").mkdir()
            make_pictures(folder / "pictures", args.pictures)
        asked = asking(embedder, args.entries, folder)
        indexed = indexing(embedder, args.images or folder / "pictures", args.rounds, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps({"model": args.model, "load_s": loaded, "asking": asked, "indexing": indexed}))


if __name__ == "__main__":
    main()
