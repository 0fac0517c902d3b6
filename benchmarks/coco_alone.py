"""What the main rows of benchmarks/papers_on_coco.py take while nothing else is on the device, and what rounding costs.

A step is the training loop's own, with batches that two processes prepare, many in a row. Scores are of the trained
model: pictures of the first fold with their sentences, a tenth of it on a CPU, in float32 in full and, where a GPU has
kernels, in the half precision that such runs are scored in, with the recalls of both.
"""

import itertools
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from diptych.common.config import read_json
from diptych.common.files import write_json
from diptych.common.fused import has_kernels
from diptych.common.precision import scored_in
from diptych.data.collection import Collection
from diptych.evaluation.figures import RECALLS, rank_figures
from diptych.evaluation.positives import Positives
from diptych.evaluation.ranks import count_ranks
from diptych.evaluation.sources import MatcherSource
from diptych.matchers.base import Matcher
from diptych.matchers.kept import Kept
from diptych.training.ablation import Trial
from diptych.training.batches import iterate
from diptych.training.data import Splits
from diptych.training.environment import hardware
from diptych.training.held_features import HeldFeatures
from diptych.training.loop import Device, Trainer, launch
from diptych.training.losses.catalog import build_loss
from diptych.training.start import build_for

EPOCH = 4  # after the first ones, in which all negatives count
WARM_UP, STEPS = 10, 50
WORKERS = 2
FOLD, FOLD_ON_CPU = 1000, 100


def measure_alone(
    trials: Sequence[Trial], path: Path, splits: Splits, device: torch.device, until: float | None
) -> int:
    """Add to `path` what is not there yet, a row a trial, until a time on the clock of `time.monotonic`.

    Returns how many are left.
    """
    rows: dict[str, Any] = read_json(path)["rows"] if path.exists() else {}
    for trial in trials:
        name = f"{trial.recipe.name}/{trial.variant}"
        if name in rows or not (trial.run / "best").exists() or (until is not None and time.monotonic() >= until):
            continue
        told: dict[str, Any] = {"step_seconds": seconds_of_a_step(trial, splits, device)}
        matcher = Matcher.from_pretrained(trial.run / "best").to(device)
        rows[name] = told | scored(matcher, splits.test, scored_in(trial.recipe.training.precision))
        write_json(path, {"device": hardware(device), "rows": rows})
        print(f"{name}, alone: {told}", file=sys.stderr)
    return sum(f"{trial.recipe.name}/{trial.variant}" not in rows for trial in trials)


def seconds_of_a_step(trial: Trial, splits: Splits, device: torch.device) -> float:
    """Seconds of one training step, of many in a row."""
    recipe = trial.recipe
    torch.set_float32_matmul_precision("high")  # as a run sets it
    with TemporaryDirectory() as folder:
        fabric = launch(recipe, Device(str(device)))
        loss = build_loss(recipe.loss)
        trainer = Trainer(fabric, recipe, Path(folder) / "run", splits, build_for(recipe, splits), loss)
        trainer.module.train()
        batches = iterate(trainer.dataset, EPOCH, 0, EPOCH + WARM_UP + STEPS, WORKERS)  # of any length of an epoch
        for batch in itertools.islice(batches, WARM_UP):
            trainer._step(batch, EPOCH)
        wait(device)
        begun = time.perf_counter()
        for batch in itertools.islice(batches, STEPS):
            trainer._step(batch, EPOCH)
        wait(device)
        return (time.perf_counter() - begun) / STEPS


def scored(matcher: Matcher, test: Collection, half: torch.dtype | None) -> dict[str, Any]:
    """Seconds of the first fold's pairs, and its recalls: in float32, and in half precision where kernels serve."""
    part = test.first(FOLD_ON_CPU if matcher.device.type == "cpu" else FOLD)
    assert isinstance(part.features, HeldFeatures)
    images = part.features.encode(matcher, part).to(matcher.device)
    texts = matcher.encode_texts(part.captions()[0], batch_size=1024)
    right = Positives.from_owners(part.captions()[1], len(images))
    torch.set_float32_matmul_precision("highest")
    found = {"float32": timed(matcher, images, texts, right, None)}
    if half is not None and has_kernels(matcher.device):
        found[str(half).removeprefix("torch.")] = timed(matcher, images, texts, right, half)
    return {"pairs": len(images) * len(texts), "scores": found}


def timed(matcher: Matcher, images: Kept, texts: Kept, right: Positives, dtype: torch.dtype | None) -> dict[str, float]:
    """Recalls, and the seconds of the second of two rankings."""
    source = MatcherSource(matcher, images, texts, dtype=dtype)
    count_ranks(source, right)
    begun = time.perf_counter()
    i2t, t2i = count_ranks(source, right)
    seconds = time.perf_counter() - begun
    figures = rank_figures(i2t.mean, t2i.mean)
    return {"seconds": seconds, **{key: figures[key] for key in RECALLS}}


def wait(device: torch.device) -> None:
    """Until the device has done what it was asked."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
