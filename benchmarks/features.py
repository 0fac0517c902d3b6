"""`diptych features` from JPEG files beside the bare backbone on ready tensors, in one run.

    python benchmarks/features.py [--backbone NAME] [--size N] [--pictures N] [--rounds N] [--images FOLDER_OR_TAR]

Expected on two cores: at least 80 % of the bare backbone's pictures per second. Without --images it makes its own
JPEGs of 500 x 375 pixels. The two take turns, so that both meet the same load; the bare backbone is given the better
of two ways to use the cores: all of them on one batch, or one batch a core.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageFilter
from torch import Tensor

from diptych.data.collection import Item
from diptych.data.feature_file import FeatureSource
from diptych.data.feature_writer import FeatureWriter
from diptych.data.read import read_collection
from diptych.encoders.backbones import Backbone, load_backbone
from diptych.encoders.extract import describe, extract_features


def make_pictures(folder: Path, count: int) -> None:
    """Pictures that compress like photographs: soft shapes at several scales with some grain, about 50 KB each."""
    rng = np.random.default_rng(0)
    for i in range(count):
        layers = np.zeros((375, 500, 3))
        for scale in (2, 8, 32, 128):
            noise = rng.normal(size=(375 // scale + 2, 500 // scale + 2, 3))
            channels = [Image.fromarray(noise[..., c].astype(np.float32)).resize((500, 375)) for c in range(3)]
            layers += np.stack([np.asarray(c) for c in channels], -1) * scale**0.6
        grain = rng.normal(size=layers.shape)
        values = np.clip(128 + layers * 3.5 + grain * 4, 0, 255).astype(np.uint8)
        Image.fromarray(values).filter(ImageFilter.GaussianBlur(0.6)).save(folder / f"{i:05d}.jpg", quality=90)


def bare_together(backbone: Backbone, batches: Sequence[Tensor]) -> None:
    """All cores on one batch."""
    with torch.inference_mode():
        for batch in batches:
            backbone(batch)


def bare_apart(backbone: Backbone, batches: Sequence[Tensor]) -> None:
    """One batch a core."""

    def run(batch: Tensor) -> None:
        torch.set_num_threads(1)
        with torch.inference_mode():
            backbone(batch)

    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        list(pool.map(run, batches))


def end_to_end(backbone: Backbone, items: Sequence[Item], source: FeatureSource) -> None:
    with tempfile.TemporaryDirectory() as folder, closing(FeatureWriter(Path(folder) / "features", source)) as writer:
        problems = extract_features(items, backbone, writer)
        assert not problems, problems[0]
        writer.finish()


def measure(work: Callable[[], None], pictures: int) -> tuple[float, float]:
    """Pictures per second, and milliseconds of one core that a picture took, which other programs disturb less."""
    start, used = time.perf_counter(), time.process_time()
    work()
    return pictures / (time.perf_counter() - start), (time.process_time() - used) / pictures * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--backbone", default="efficientnet-lite0")
    parser.add_argument("--size", type=int)
    parser.add_argument("--pictures", type=int, default=192)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--images", help="a folder or tar of pictures in place of made ones")
    options = parser.parse_args()
    threads = torch.get_num_threads()
    with tempfile.TemporaryDirectory() as folder:
        if options.images is None:
            make_pictures(Path(folder), options.pictures)
        items = read_collection(options.images or folder).items[: options.pictures]
        backbone = load_backbone(options.backbone, options.size).eval().to(memory_format=torch.channels_last)
        assert all(item.open is not None for item in items)
        pixels = torch.stack([backbone.preprocess(item.open()) for item in items if item.open is not None])
        source = describe(backbone, options.backbone)
        ways: dict[str, Callable[[], None]] = {"end to end": lambda: end_to_end(backbone, items, source)}
        for size in (4, 32):
            batches = [b.contiguous(memory_format=torch.channels_last) for b in pixels.split(size)]
            ways[f"bare, all cores on a batch of {size}"] = lambda b=batches: bare_together(backbone, b)
            ways[f"bare, a batch of {size} on each core"] = lambda b=batches: bare_apart(backbone, b)
        rates: dict[str, list[float]] = {name: [] for name in ways}
        costs: dict[str, list[float]] = {name: [] for name in ways}
        for turn in range(options.rounds + 1):
            for name, work in ways.items():
                torch.set_num_threads(threads)
                found, cost = measure(work, len(items))
                if turn:  # the first is for warming up
                    rates[name].append(found)
                    costs[name].append(cost)
    best = max((name for name in rates if name != "end to end"), key=lambda name: statistics.median(rates[name]))
    ratios = [a / b for a, b in zip(rates["end to end"], rates[best], strict=True)]
    print(f"{options.backbone} at {backbone.size} pixels, {len(items)} pictures, {threads} threads, medians of rounds")
    for name, values in rates.items():
        cost = statistics.median(costs[name])
        print(f"  {name:<38} {statistics.median(values):7.1f} pictures/s {cost:7.1f} core-ms a picture")
    print(f"  end to end / best bare: {statistics.median(ratios):.0%} (rounds: {min(ratios):.0%} to {max(ratios):.0%})")


if __name__ == "__main__":
    main()
