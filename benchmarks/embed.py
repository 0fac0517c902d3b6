"""`diptych embed` on one machine, plain and with Ray, beside the bare model, in one run.

    python benchmarks/embed.py [--model NAME] [--pictures N] [--part N] [--workers N] [--rounds N] [--no-ray]

Expected on two cores: at least 80 % of the bare model's pictures a second, with either engine. The pictures are drawn
scenes of 480 x 480 pixels as JPEG files. The bare model has its pictures decoded and prepared, and takes a batch a
core. It and the engines take turns, so that all meet the same load. An engine's rate is that of its working time:
loading models is told apart. One JSON object at the end.
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
from PIL import Image

from diptych.data.scenes.draw import draw
from diptych.data.scenes.generate import captioned_scenes
from diptych.search.filling.embed import embed
from diptych.search.filling.embed_ray import RayPool
from diptych.search.models.embedder import Embedder, load_embedder

BATCH, SIDE = 4, 480


def draw_pictures(folder: Path, count: int) -> None:
    """Scenes as JPEG files."""
    folder.mkdir()
    for i, scene in enumerate(captioned_scenes(count)):
        draw(scene.scene, SIDE).save(folder / f"{i:05d}.jpg", quality=90)


def bare(embedder: Embedder, pixels: Sequence[np.ndarray]) -> float:
    """Pictures a second of the model alone, a batch a core."""

    def one(start: int) -> None:
        torch.set_num_threads(1)
        embedder.embed_pixels(pixels[start : start + BATCH], [(SIDE, SIDE)] * len(pixels[start : start + BATCH]))

    begin = time.perf_counter()
    with ThreadPoolExecutor(os.cpu_count() or 1) as threads:
        list(threads.map(one, range(0, len(pixels), BATCH)))
    return len(pixels) / (time.perf_counter() - begin)


def run(pictures: Path, out: Path, args: argparse.Namespace, pool: RayPool | None, starts: list[float]) -> float:
    """Pictures a second of an engine, while it works."""
    begin = time.perf_counter()
    report = embed([pictures], out, args.model, part=args.part, device="cpu", pool=pool)
    assert report.speed is not None
    assert (report.entries, report.bad) == (args.pictures, 0)
    starts.append(time.perf_counter() - begin - args.pictures / report.speed.rate)
    return report.speed.rate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="default")
    parser.add_argument("--pictures", type=int, default=512)
    parser.add_argument("--part", type=int, default=128)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-ray", action="store_true", help="the plain engine alone")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    pictures = folder / "pictures"
    try:
        draw_pictures(pictures, args.pictures)
        embedder = load_embedder(args.model, "cpu")
        pixels = [embedder.prepare(Image.open(path).convert("RGB")) for path in sorted(pictures.iterdir())]
        starts: dict[str, list[float]] = {"plain": [], "ray": []}
        pool = RayPool(args.workers, gpus_per_worker=0)
        ways: dict[str, Callable[[int], float]] = {
            "bare model": lambda turn: bare(embedder, pixels),
            "plain": lambda turn: run(pictures, folder / f"plain-{turn}", args, None, starts["plain"]),
        }
        if not args.no_ray:
            import ray

            ray.init(include_dashboard=False, log_to_driver=False)  # once, for all rounds
            ways["ray"] = lambda turn: run(pictures, folder / f"ray-{turn}", args, pool, starts["ray"])
        rates: dict[str, list[float]] = {name: [] for name in ways}
        for turn in range(args.rounds):
            for name, work in ways.items():
                rates[name].append(work(turn))
                print(f"round {turn + 1}: {name} {rates[name][-1]:.1f} pictures/s", file=sys.stderr, flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    result: dict[str, Any] = {"model": args.model, "pictures": args.pictures, "rounds": args.rounds, "ways": {}}
    for name, values in rates.items():
        shares = [value / base for value, base in zip(values, rates["bare model"], strict=True)]
        begun = statistics.median(starts[name]) if starts.get(name) else 0.0
        told = {"rate": statistics.median(values), "share": statistics.median(shares), "start_s": begun}
        result["ways"][name] = told | {"shares": shares}
        spread = f"{min(shares):.0%} to {max(shares):.0%}"
        start = f", {begun:.0f} s to load and to end" if begun else ""
        print(f"{name:12s} {told['rate']:7.1f} pictures/s  {told['share']:5.0%} ({spread}){start}", file=sys.stderr)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
