"""How much memory an evaluation takes: CAMP on COCO's 5,000 pictures with 25,000 sentences, or smaller.

    python benchmarks/evaluation_memory.py --device cuda --dtype bfloat16
    python benchmarks/evaluation_memory.py --pictures 60 --sentences 300 --dim 64      on this CPU, to try it

A CAMP with random weights is evaluated on random local features by the package's own evaluation: encoded, all pairs
scored, ranks counted. Told are the peak of the GPU's memory, and by how much the process's own memory grew beyond what
it was before, when the features lay there and PyTorch was loaded. One JSON object at the end.
"""

import argparse
import json
import resource
import sys
import time

import numpy as np
import torch

from diptych.data.collection import Collection, Item, Regions, sentences
from diptych.data.vocabulary import SPECIAL
from diptych.evaluation.evaluate import evaluate_matcher
from scoring import VOCABULARY, device_name, random_matcher


class MadeFeatures:
    """Random regions, drawn when they are asked for: as if they were read from a file."""

    def __init__(self, pictures: int, regions: int, dim: int) -> None:
        self.pictures, self.regions, self.dim = pictures, regions, dim

    def __len__(self) -> int:
        return self.pictures

    def __getitem__(self, row: int) -> Regions:
        shape = (self.regions, self.dim)
        return Regions(np.random.default_rng(row).standard_normal(shape, dtype=np.float32))


def main() -> None:
    args = arguments()
    device = torch.device(args.device)
    matcher = random_matcher("camp", [f"dim={args.dim}"]).to(device).eval()
    each = args.sentences // args.pictures
    rng = np.random.default_rng(0)
    words = rng.integers(VOCABULARY - len(SPECIAL), size=(args.pictures, each, args.words - 2))
    items = [
        Item(str(i), sentences([" ".join(f"w{word}" for word in row) for row in rows], str(i)), split="test", row=i)
        for i, rows in enumerate(words)
    ]
    features = MadeFeatures(args.pictures, 36, matcher.config.image.feature_dim)
    data = Collection("made", items, features)
    if device.type == "cuda":
        torch.zeros(1, device=device)
        torch.cuda.reset_peak_memory_stats(device)
    before = resident()
    begun = time.perf_counter()
    result = evaluate_matcher(matcher, data, dtype=None if args.dtype == "float32" else getattr(torch, args.dtype))
    seconds = time.perf_counter() - begun
    row = {
        "device": device_name(device),
        "pictures": args.pictures,
        "sentences": args.pictures * each,
        "dim": args.dim,
        "dtype": args.dtype,
        "seconds": seconds,
        "grown GiB": (resident() - before) / 2**30,
        "GPU GiB": torch.cuda.max_memory_allocated(device) / 2**30 if device.type == "cuda" else None,
        "t2i/r@10": result["t2i/r@10"],
    }
    gpu = "" if row["GPU GiB"] is None else f", {row['GPU GiB']:.2f} GiB of the GPU's memory"
    print(f"{seconds:.1f} s, {row['grown GiB']:.2f} GiB of main memory{gpu}", file=sys.stderr)
    print(json.dumps(row))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", choices=["float32", "bfloat16", "float16"], default="float32")
    parser.add_argument("--pictures", type=int, default=5000)
    parser.add_argument("--sentences", type=int, default=25000)
    parser.add_argument("--words", type=int, default=16)
    parser.add_argument("--dim", type=int, default=1024)
    return parser.parse_args()


def resident() -> int:
    """The most bytes of main memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()
