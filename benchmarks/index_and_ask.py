"""A model at work: from a sentence to ten paths, and indexing a folder, each beside the bare model, in one run.

    python benchmarks/index_and_ask.py [--model NAME] [--entries N] [--pictures N] [--images FOLDER] [--rounds N]

Expected on two quiet cores, with diptych[fast]: from a sentence to ten paths under 15 ms (median) among 10,000
pictures, confidences included, and indexing at twice the bare model's pictures a second or more. The bare model is the
encoder itself in float32, its pictures decoded and prepared; it is given the best of three ways to use the cores, and
takes turns with indexing. Where the cores are not quiet, the time spent on them tells more than the clock: it is
printed beside. The entries are made-up vectors; the pictures to index are made-up JPEGs of 500 x 375 pixels, unless
--images names others. One JSON object at the end.
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

WAYS = {  # how the bare model may use the cores: pictures at once, whether each core has a batch of its own
    "bare, one a core": (1, True),
    "bare, four a core": (4, True),
    "bare, four by all cores": (4, False),
}


def asking(ours: Embedder, bare: Embedder, entries: int, folder: Path) -> dict[str, Any]:
    """Milliseconds from a sentence to ten paths, and of each stage, by our text encoder and by the bare one."""
    rng = np.random.default_rng(0)
    shape = ours.layout.set_size, ours.layout.dim
    centres = rng.standard_normal((2000, *shape), dtype=np.float32)
    with Index.create(folder / "asked.db", ours) as index:
        for start in range(0, entries, 5000):
            some = range(start, min(start + 5000, entries))
            vectors = centres[rng.integers(0, 2000, len(some))]
            vectors = vectors + 0.7 * rng.standard_normal(vectors.shape, dtype=np.float32)
            index.add_vectors([f"photos/IMG_{i:08d}.jpg" for i in some], vectors)
        index.prepare()
    ours.hasten_texts()
    indexes = {name: Index.create(folder / "asked.db", own) for name, own in (("ours", ours), ("bare", bare))}
    turns: dict[str, list[dict[str, float]]] = {name: [] for name in indexes}
    for index in indexes.values():
        for text in SENTENCES[:5]:
            index.search(text)
    for text in SENTENCES:
        for name, index in indexes.items():
            begin, used = time.perf_counter(), time.process_time()
            answer = index.search(f"{text} somewhere", 10)
            whole = {"total": time.perf_counter() - begin, "on the cores": time.process_time() - used}
            assert len(answer.results) == 10
            turns[name].append({**answer.timings, **whole})
    for index in indexes.values():
        index.close()
    result = {name: _in_ms(some) for name, some in turns.items()}
    stages = list(result["ours"]["median_ms"])
    print(f"a sentence to ten of {entries:,} paths, ms" + "".join(f"{name:>14s}" for name in stages), file=sys.stderr)
    for name, figures in result.items():
        for which, values in figures.items():
            told = "".join(f"{values[stage]:14.1f}" for stage in stages)
            print(f"{name + ', ' + which.removesuffix('_ms'):{len(f'{entries:,}') + 31}s}{told}", file=sys.stderr)
    return result


def _in_ms(turns: Sequence[dict[str, float]]) -> dict[str, dict[str, float]]:
    stages = {stage: [1000 * turn[stage] for turn in turns] for stage in turns[0]}
    return {
        "median_ms": {stage: statistics.median(values) for stage, values in stages.items()},
        "p95_ms": {stage: float(np.quantile(values, 0.95)) for stage, values in stages.items()},
    }


def run_bare(embedder: Embedder, pixels: Sequence[np.ndarray], way: str) -> None:
    """The encoder alone on all pictures."""
    cores = os.cpu_count() or 1
    at_once, apart = WAYS[way]
    sizes = [(p.shape[1], p.shape[0]) for p in pixels]

    def one(start: int) -> None:
        torch.set_num_threads(1 if apart else cores)
        embedder.embed_pixels(pixels[start : start + at_once], sizes[start : start + at_once])

    with ThreadPoolExecutor(cores if apart else 1) as pool:
        list(pool.map(one, range(0, len(pixels), at_once)))


def indexing(ours: Embedder, bare: Embedder, pictures: Path, rounds: int, folder: Path) -> dict[str, Any]:
    """Pictures a second of indexing beside the bare model's."""
    from PIL import Image

    files = sorted(path for path in pictures.rglob("*") if is_picture(path.name))
    pixels = [bare.prepare(Image.open(path).convert("RGB")) for path in files]
    begin = time.process_time()
    ours.hasten_pictures()
    ready = time.process_time() - begin
    ways: dict[str, Callable[[int], None]] = {
        "indexing": lambda turn: fill(ours, pictures, folder / f"{turn}.db", len(files)),
        **{way: lambda _, way=way: run_bare(bare, pixels, way) for way in WAYS},  # type: ignore[misc]
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
    rate = {name: statistics.median(values) for name, values in rates.items()}
    cost = {name: statistics.median(values) for name, values in costs.items()}
    for name in ways:
        print(f"{name:24s} {rate[name]:7.1f} pictures/s {cost[name]:7.1f} core-ms a picture", file=sys.stderr)
    best, cheapest = max(WAYS, key=rate.__getitem__), min(WAYS, key=cost.__getitem__)
    faster = [a / b for a, b in zip(rates["indexing"], rates[best], strict=True)]
    less = [b / a for a, b in zip(costs["indexing"], costs[cheapest], strict=True)]
    spread = f"{statistics.median(faster):.2f} ({min(faster):.2f} to {max(faster):.2f})"
    print(f"pictures/s, indexing over {best!r}: {spread}", file=sys.stderr)
    spread = f"{statistics.median(less):.2f} ({min(less):.2f} to {max(less):.2f})"
    print(f"core-ms, {cheapest!r} over indexing: {spread}; made ready in {ready:.2f} core-s", file=sys.stderr)
    ratios = {"ratio": statistics.median(faster), "core_ratio": statistics.median(less)}
    return {"pictures/s": rate, "core_ms": cost, **ratios, "ready_core_s": ready, "pictures": len(files)}


def fill(embedder: Embedder, pictures: Path, address: Path, count: int) -> None:
    """Index a folder, from its files to the store."""
    with Index.create(address, embedder) as index:
        report = index.sync(pictures)
        assert report.added == count, report.problems


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="default")
    parser.add_argument("--entries", type=int, default=10_000)
    parser.add_argument("--pictures", type=int, default=128)
    parser.add_argument("--images", type=Path, help="a folder of pictures in place of made ones")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    try:
        begin = time.perf_counter()
        ours = load_embedder(args.model, "cpu")
        loaded = time.perf_counter() - begin
        bare = load_embedder(args.model, "cpu", quick=False)
        print(f"{args.model}: loaded in {loaded:.2f} s, {torch.get_num_threads()} threads", file=sys.stderr)
        if args.images is None:
            (folder / "pictures").mkdir()
            make_pictures(folder / "pictures", args.pictures)
        asked = asking(ours, bare, args.entries, folder)
        indexed = indexing(ours, bare, args.images or folder / "pictures", args.rounds, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps({"model": args.model, "load_s": loaded, "asking": asked, "indexing": indexed}))


if __name__ == "__main__":
    main()
