"""Training steps of a backbone on pictures and one on sentences: the shipped model tuned, on made JPEG files."""

import argparse
import io
import tempfile
import time
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from diptych.common.model_place import shipped_folder
from diptych.data.collection import Collection, Item, sentences
from diptych.data.tokens import load_tokenizer
from diptych.matchers.base import Matcher
from diptych.matchers.catalog import build_matcher
from diptych.training.batches import iterate
from diptych.training.data import Splits
from diptych.training.data_share import DataShare
from diptych.training.recipe import Recipe, read_recipe
from steps import (
    BATCHES,
    RECIPES,
    TOY,
    Sizes,
    Steps,
    batches_of,
    in_turns,
    look_inside,
    release,
    running,
    say,
    show,
    stepping,
    trainer_of,
    wait,
    with_peak,
)
from steps_tried import TRIED

END_TO_END = "end-to-end"


def end_to_end(sizes: Sizes, device: torch.device, args: argparse.Namespace) -> list[dict[str, Any]]:
    """The shipped model's architecture on made pictures, eager and compiled, and with each change that is tried."""
    if sizes == TOY:
        sizes = replace(sizes, batch=3)
    if find_spec("efficientnet_lite_pytorch") is None:
        say(f"{END_TO_END:14} left out: the package efficientnet_lite_pytorch is not on the path")
        return [{"model": END_TO_END, "left out": "no efficientnet_lite_pytorch"}]
    rows = []
    splits = picture_splits(sizes)
    with tempfile.TemporaryDirectory() as folder:
        trainers: dict[str, Steps] = {}
        peaks: dict[str, float | None] = {}
        names = ["eager", "compiled", *args.tried]
        for name in names:
            recipe = picture_recipe(sizes, args, name != "eager")
            build = partial(tuned, name, recipe, splits, Path(folder) / name, device)
            trainers[name], peaks[name] = with_peak(build, args.warm_up, device)
            if name == "compiled":
                look_inside(trainers[name], batches_of(trainers[name]), args)
        times = in_turns({name: stepping(trainer) for name, trainer in trainers.items()}, args.steps, device)
        for name in names:
            found: dict[str, Any] = {"model": END_TO_END, "contender": name, **times[name], "peak GiB": peaks[name]}
            found["ms in a row"] = running(stepping(trainers[name]), args.steps, device)
            rows.append(found)
            show(found)
        if not args.no_data:
            for name, trainer in (
                ("held pictures", trainers["compiled"]),
                ("JPEG files", decoding(trainers["compiled"], sizes, args, splits, Path(folder), device)),
            ):
                rows.append({"model": END_TO_END, "contender": f"compiled, {name}", **data_share(trainer, args)})
                show(rows[-1])
        trainers.clear()
    release(device)
    return rows


def picture_recipe(sizes: Sizes, args: argparse.Namespace, compiled: bool) -> Recipe:
    """recipes/default.toml with this benchmark's batches."""
    small = sizes.side == TOY.side
    changes = (
        f"training.batch_size={sizes.batch}",
        f"training.precision={args.precision}",
        f"training.compile={str(compiled and not small).lower()}",  # compiling takes longer than all else in small
        f"training.hold_pictures={sizes.held}",
        f"training.workers={args.workers}",
        "training.epochs=1000",
        f"model.image.size={sizes.side}",
    )
    return read_recipe(RECIPES / "default.toml", assignments=changes)


def picture_splits(sizes: Sizes) -> Splits:
    """JPEG files in memory, each with five captions of random words as long as COCO's are."""
    rng = np.random.default_rng(0)
    words = np.array([piece for piece in tokenizer_of().pieces(range(2000, 12000)) if piece.isalpha()])
    items = []
    for i in range(BATCHES * sizes.batch):
        few = rng.integers(0, 256, (12, 16, 3), dtype=np.uint8)
        file = io.BytesIO()
        Image.fromarray(few).resize(sizes.picture, Image.Resampling.BICUBIC).save(file, "JPEG", quality=90)
        captions = [" ".join(rng.choice(words, count)) for count in caption_lengths(rng, 5)]
        items.append(Item(str(i), sentences(captions, str(i)), split="train", open=partial(decoded, file.getvalue())))
    train = Collection("made", items)
    return Splits(train, train.first(1), train.first(1))


def decoded(file: bytes) -> Image.Image:
    return Image.open(io.BytesIO(file))


def caption_lengths(rng: np.random.Generator, count: int) -> np.ndarray:
    """About 10.5 words on average, and now and then far more."""
    usual = rng.lognormal(np.log(10.3), 0.2, count)
    return np.where(rng.random(count) < 0.004, rng.uniform(20, 44, count), usual).round().astype(int).clip(5, 44)


def tokenizer_of() -> Any:
    folder = shipped_folder("default")
    assert folder is not None
    return load_tokenizer(folder, 48)


def tuned(name: str, recipe: Recipe, splits: Splits, run: Path, device: torch.device) -> Steps:
    """A run that tunes the shipped architecture; a change that is tried is made to it."""
    torch.manual_seed(0)
    folder = shipped_folder("default")
    assert folder is not None
    config: Any = recipe.model
    # By another name its word embeddings are those of the folder's architecture, and not those of a package.
    made = replace(config, text=replace(config.text, name="made"), image=replace(config.image, frozen=False))
    matcher = build_matcher(made, tokenizer_of(), assets=folder)
    load_shipped(matcher, folder)
    changes = [TRIED[part] for part in name.split("+") if part in TRIED]
    for change in changes:
        if change.before is not None:
            change.before(matcher)
    trainer = trainer_of(Steps, replace(recipe, model=made), splits, run, device, matcher)
    for change in changes:
        if change.after is not None:
            change.after(trainer)
    return trainer


def load_shipped(matcher: Matcher, folder: Path) -> None:
    """The shipped weights; word embeddings, which they are without, stay random, and hubs are levelled after tuning."""
    from safetensors.torch import load_file

    weights = load_file(folder / "model.safetensors")
    weights = {name: tensor for name, tensor in weights.items() if not name.startswith(("image_hubs.", "text_hubs."))}
    found = matcher.load_state_dict(weights, strict=False)
    left = [name for name in found.missing_keys if not name.startswith("text_encoder.backbone.embeddings.")]
    assert not left, left
    assert not found.unexpected_keys, found.unexpected_keys


def decoding(
    trained: Steps, sizes: Sizes, args: argparse.Namespace, splits: Splits, folder: Path, device: torch.device
) -> Steps:
    """The same run, its pictures decoded anew for every step."""
    recipe = picture_recipe(sizes, args, compiled=True)
    recipe = replace(recipe, model=trained.recipe.model, training=replace(recipe.training, hold_pictures=None))
    return trainer_of(Steps, recipe, splits, folder / "decoding", device, trained.matcher)


def data_share(trainer: Steps, args: argparse.Namespace) -> dict[str, float]:
    """Steps with the data that a run's workers make meanwhile: milliseconds, and the share spent in waiting for it."""
    batches = iterate(trainer.dataset, 0, 0, 1000, args.workers)
    for _ in range(args.warm_up):
        trainer.step(next(batches))
    wait(trainer.fabric.device)
    share, begun = DataShare(), time.perf_counter()
    for _ in range(args.steps):
        trainer.step(share.take(batches))
    wait(trainer.fabric.device)
    taken = 1000 * (time.perf_counter() - begun) / args.steps
    waited = share.share()
    batches.close()
    return {"ms": taken, "share waiting for data": waited, "workers": args.workers}
