"""What the training benchmarks share: the training loop a step at a time, its plain counterpart, and measuring."""

import argparse
import statistics
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from diptych.matchers.base import Matcher
from diptych.matchers.kept import Kept
from diptych.training.batches import Batch
from diptych.training.data import Splits
from diptych.training.log import Measured
from diptych.training.loop import Device, Trainer, launch
from diptych.training.losses.catalog import build_loss
from diptych.training.recipe import Recipe

RECIPES = Path(__file__).parent.parent / "recipes"
EPOCH = 10  # after the first epochs, in which some recipes take all negatives
BATCHES = 4  # different batches that steps go through
ROWS = 16  # pictures at a time, as CAMP's recipes had them


@dataclass(frozen=True)
class Sizes:
    """How large a step is; `dim` is the joint dimension where it is not the recipe's."""

    batch: int = 128
    regions: int = 36
    features: int = 2048
    words: int = 16
    dim: int | None = None
    side: int = 260
    held: int = 256
    picture: tuple[int, int] = (640, 480)


TOY = Sizes(batch=24, regions=5, features=16, words=6, dim=32, side=64, held=48, picture=(96, 72))


class Steps(Trainer):
    """The training loop, a step at a time."""

    def step(self, batch: Batch) -> Measured:
        """One optimiser step, as a run takes it."""
        return self._step(batch, EPOCH)


class PlainSteps(Steps):
    """The same with all pairs scored with gradient, at once."""

    def _scores(self, images: Kept, texts: Kept) -> Tensor:
        return self._score(images, texts)

    def _score(self, images: Kept, texts: Kept) -> Tensor:
        score = self.matcher.logits if self.loss_function.takes_logits else self.matcher.score
        return score(images, texts)


class PlainRows(PlainSteps):
    """Some pictures at a time, computed again in the backward pass."""

    def _scores(self, images: Kept, texts: Kept) -> Tensor:
        parts = [images[start : start + ROWS] for start in range(0, len(images), ROWS)]
        return torch.cat([checkpoint(self._score, part, texts, use_reentrant=False) for part in parts])


def trainer_of(
    kind: type[Steps], recipe: Recipe, splits: Splits, run: Path, device: torch.device, matcher: Matcher
) -> Steps:
    """A run that has not begun."""
    trainer = kind(launch(recipe, Device(str(device))), recipe, run, splits, matcher, build_loss(recipe.loss))
    trainer.module.train()
    return trainer


def batches_of(trainer: Trainer) -> list[Batch]:
    """A few batches, as a run's workers make them."""
    batches = [trainer.dataset[0, step] for step in range(len(trainer.dataset.batches(0)))]
    return [batch.pin_memory() for batch in batches] if trainer.fabric.device.type == "cuda" else batches


def stepping(trainer: Steps) -> Callable[[], object]:
    """Steps through the batches, again and again."""
    batches, done = batches_of(trainer), 0

    def step() -> Measured:
        nonlocal done
        done += 1
        return trainer.step(batches[done % len(batches)])

    return step


def with_peak(build: Callable[[], Steps], warm_up: int, device: torch.device) -> tuple[Steps, float | None]:
    """A trainer that is warm, and the most memory that one step of it takes with its weights, in GiB."""
    release(device)
    before = torch.cuda.memory_allocated(device) if device.type == "cuda" else 0
    trainer = build()
    held = trainer.held_features.vectors.nbytes if trainer.held_features is not None else 0
    held += trainer.held.pixels.nbytes if trainer.held is not None else 0
    held += trainer.held_sentences.hidden.nbytes if trainer.held_sentences is not None else 0
    step = stepping(trainer)
    for _ in range(warm_up):
        step()
    if device.type != "cuda":
        return trainer, None
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    step()
    torch.cuda.synchronize(device)
    return trainer, (torch.cuda.max_memory_allocated(device) - before - held) / 2**30


def in_turns(calls: dict[str, Callable[[], object]], steps: int, device: torch.device) -> dict[str, dict[str, float]]:
    """Milliseconds of each call, the median of several in turns; the spread is the ninth tenth over the first."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(steps + 1):
        for name, call in calls.items():
            wait(device)
            begun = time.perf_counter()
            call()
            wait(device)
            if turn:
                taken[name].append(1000 * (time.perf_counter() - begun))
    return {name: {"ms": statistics.median(ms), "spread": tenths(ms)} for name, ms in taken.items()}


def tenths(values: Sequence[float]) -> float:
    low, high = np.quantile(values, [0.1, 0.9])
    return float(high / low)


def running(call: Callable[[], object], steps: int, device: torch.device) -> float:
    """Milliseconds a step where steps follow each other without waiting, as in a run."""
    call()
    wait(device)
    begun = time.perf_counter()
    for _ in range(steps):
        call()
    wait(device)
    return 1000 * (time.perf_counter() - begun) / steps


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def release(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.empty_cache()


def look_inside(trainer: Steps, batches: list[Batch], args: argparse.Namespace) -> None:
    """What waits for the GPU within a step, and which kernels its time goes to, where that is asked for."""
    device = trainer.fabric.device
    if args.syncs and device.type == "cuda":
        places = syncs(lambda: trainer.step(batches[0]))
        say(f"    {sum(places.values())} places wait for the GPU")
        for place, count in places.most_common():
            say(f"    {count:4} {place}")
    if args.profile:
        activities = [torch.profiler.ProfilerActivity.CPU]
        if device.type == "cuda":
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        with torch.profiler.profile(activities=activities) as profile:
            for batch in batches:
                trainer.step(batch)
            wait(device)
        by = "self_cuda_time_total" if device.type == "cuda" else "self_cpu_time_total"
        table = profile.key_averages()
        launches = sum(event.count for event in table if event.key in ("cudaLaunchKernel", "cuLaunchKernelEx"))
        say(table.table(sort_by=by, row_limit=30, max_name_column_width=60))
        say(f"    {launches / len(batches):.0f} launches a step")


def syncs(call: Callable[[], object]) -> Counter[str]:
    """Which lines of the package wait for the GPU within a call, and how often."""
    places: Counter[str] = Counter()

    def note(message: Warning | str, *_: object, **__: object) -> None:
        if "synchroniz" not in str(message):
            return
        frames = [f for f in traceback.extract_stack() if "diptych" in f.filename and "benchmarks" not in f.filename]
        last = frames[-1] if frames else None
        places["somewhere else" if last is None else f"{Path(last.filename).name}:{last.lineno}: {last.line}"] += 1

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = note
        torch.cuda.set_sync_debug_mode("warn")
        try:
            call()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return places


def show(row: dict[str, Any]) -> None:
    peak = "" if row.get("peak GiB") is None else f"{row['peak GiB']:9.2f}"
    spread = f"{row['spread']:7.2f}" if "spread" in row else " " * 7
    told = [
        f"{precision}: gradients off by {found['gradient off']:.1e} (median {found['median off']:.1e})"
        for precision, found in row.get("beside plain", {}).items()
    ]
    told += [f"{row['ms in a row']:.1f} ms in a row"] if "ms in a row" in row else []
    told += [f"{row['share waiting for data']:.0%} waiting for data"] if "share waiting for data" in row else []
    told += [row["text"]] if "text" in row else []
    say(f"{row['model']:14} {row['contender']:22} {row['ms']:10.2f} {spread} {peak:>9}  {'; '.join(told)}")


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
