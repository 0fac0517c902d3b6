"""Whether half precision changes what is found: recalls of trained models, float32 beside float16 or bfloat16.

    python benchmarks/half_precision.py                       a few steps on this CPU, to try it
    python benchmarks/half_precision.py --device cuda         at the papers' widths on a GPU, by its kernels
    python benchmarks/half_precision.py --device cuda --only camp mmca --epochs 6

Each model is trained on drawn scenes by its recipe, at the papers' dimension, and the test scenes are ranked twice: by
scores whose products are float32's in full, and by scores of half precision. Random weights would not do: their scores
lie so near to each other that any rounding moves ranks. One JSON object at the end.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from diptych.evaluation.encode import encode_collection
from diptych.evaluation.figures import rank_figures
from diptych.evaluation.positives import Positives
from diptych.evaluation.ranks import count_ranks
from diptych.evaluation.sources import MatcherSource
from diptych.matchers.base import Matcher
from diptych.training.data import load_splits
from diptych.training.loop import Device, train
from diptych.training.recipe import read_recipe
from scoring import device_name

RECIPES = Path(__file__).parents[1] / "recipes"
RECALLS = [f"{way}/r@{k}" for way in ("i2t", "t2i") for k in (1, 5, 10)]
# A name, its recipe, and what takes it to the paper's widths.
MODELS = {
    "vse-infinity": ("vse-infinity-scenes", ["model.dim=1024"]),
    "dive": ("dive-scenes", ["model.dim=1024"]),
    "scan-t2i": ("scan-scenes", ["model.dim=1024"]),
    "scan-i2t": ("scan-scenes", ["model.dim=1024", 'model.direction="i2t"', "model.softmax_lambda=4.0"]),
    "camp": ("camp-scenes", ["model.dim=1024"]),
    "camp-scalar": ("camp-scenes", ["model.dim=1024", 'model.gate="scalar"']),
    "mmca": ("mmca-scenes", ["model.dim=256", "model.heads=16"]),
}


def main() -> None:
    args = arguments()
    device = torch.device(args.device)
    large = device.type != "cpu"
    dtype: torch.dtype = getattr(torch, args.dtype)
    say(f"{device_name(device)}: float32 beside {args.dtype}, {args.test} test scenes")
    say(f"{'model':14} {'trained':>8} " + " ".join(f"{name:>14}" for name in RECALLS) + f" {'most':>6}")
    rows = []
    for name in args.only or MODELS:
        recipe, settings = MODELS[name]
        sizes = [f"data.train={args.train}", f"data.test={args.test}", "data.validation=100"]
        length = [
            f"training.batch_size={args.batch}",
            f"training.epochs={args.epochs}",
            f"training.evaluate_epochs={args.epochs}",
        ]
        precision = 'training.precision="bf16"' if large else 'training.precision="float32"'
        widths = settings if large else [setting for setting in settings if "dim=" not in setting]
        given = [*widths, *sizes, *length, precision]
        rows.append(compare(name, recipe, given, args.device, dtype))
    print(json.dumps({"device": device_name(device), "dtype": args.dtype, "test": args.test, "rows": rows}))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", choices=["bfloat16", "float16"], default="float16")
    parser.add_argument("--only", nargs="*", choices=MODELS)
    parser.add_argument("--train", type=int, default=2000, help="scenes to train on")
    parser.add_argument("--test", type=int, default=1000, help="scenes to rank")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch", type=int, default=128)
    return parser.parse_args()


def compare(name: str, recipe: str, settings: list[str], device: str, dtype: torch.dtype) -> dict[str, Any]:
    """One model: trained, its test scenes ranked in float32 and in half precision."""
    told = read_recipe(RECIPES / f"{recipe}.toml", None, tuple(settings))
    splits = load_splits(told.data)
    begun = time.perf_counter()
    with TemporaryDirectory() as folder:
        if not train(told, Path(folder) / "run", Device(device), splits).finished:
            raise SystemExit(f"{name}: stopped")
        matcher = Matcher.from_pretrained(Path(folder) / "run" / "best", device=device)
    trained = time.perf_counter() - begun
    torch.set_float32_matmul_precision("highest")  # training rounds factors
    images, texts = encode_collection(matcher, splits.test)
    right = Positives.from_owners(splits.test.captions()[1], len(images))
    figures = []
    for kind in (None, dtype):
        i2t, t2i = count_ranks(MatcherSource(matcher, images, texts, dtype=kind), right)
        figures.append(rank_figures(i2t.mean, t2i.mean))
    full, half = figures
    most = max(abs(half[key] - full[key]) for key in RECALLS)
    say(
        f"{name:14} {trained:6.1f} s "
        + " ".join(f"{full[key]:6.2f} {half[key]:6.2f} " for key in RECALLS)
        + f" {most:6.2f}"
    )
    return {
        "model": name,
        "settings": settings,
        "float32": {key: full[key] for key in RECALLS},
        "half": {key: half[key] for key in RECALLS},
        "most": most,
    }


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
