"""Training steps over local features: the models of the papers, on made data, beside the same loop in plainer forms."""

import argparse
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from diptych.data.collection import Collection, Item, Regions, sentences
from diptych.data.tokens import WordTokenizer
from diptych.data.vocabulary import SPECIAL, Vocabulary
from diptych.encoders.bert import BertConfig
from diptych.matchers.base import Matcher
from diptych.matchers.catalog import build_matcher
from diptych.training.data import Splits
from diptych.training.recipe import Recipe, read_recipe
from diptych.training.terms.catalog import weighted_terms
from scoring import VOCABULARY
from steps import (
    BATCHES,
    RECIPES,
    ROWS,
    TOY,
    PlainRows,
    PlainSteps,
    Sizes,
    Steps,
    batches_of,
    in_turns,
    look_inside,
    release,
    show,
    stepping,
    trainer_of,
    with_peak,
)
from steps_tried import pools_aside

COMPILED = ("dive", "mmca")  # rows with something to compile


@dataclass(frozen=True)
class Row:
    """One model: its recipe, and what is changed of it."""

    name: str
    recipe: str
    settings: tuple[str, ...] = ()


ROWS_OF_TABLE = (
    Row("vse-infinity", "vse-infinity-coco"),
    Row("dive", "dive-coco"),
    Row("scan-t2i", "scan-coco"),
    Row("mmca", "mmca-coco"),
    Row("camp", "camp-coco"),
)


class MadeFeatures:
    """Random regions."""

    def __init__(self, pictures: int, regions: int, dim: int) -> None:
        self.vectors = np.random.default_rng(0).standard_normal((pictures, regions, dim), dtype=np.float32)
        self.dim = dim

    def __len__(self) -> int:
        return len(self.vectors)

    def __getitem__(self, row: int) -> Regions:
        return Regions(self.vectors[row])


def feature_rows(row: Row, sizes: Sizes, device: torch.device, args: argparse.Namespace) -> list[dict[str, Any]]:
    """A model's contenders: checked, their memory measured one by one, then timed in turns."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        recipe = feature_recipe(row, sizes, args)
        splits = feature_splits(sizes)
        kinds: dict[str, type[Steps]] = {"as it is": Steps}
        if not args.no_plain:
            kinds["all pairs"] = PlainSteps
            if row.name == "camp":
                kinds[f"all pairs, {ROWS} rows"] = PlainRows
        if row.name == "vse-infinity" and "pools-aside" in args.tried:
            kinds["pools-aside"] = Steps
        if row.name in COMPILED:
            kinds["compiled"] = Steps
            if "cuda-graphs" in args.tried:
                kinds["compiled, cuda-graphs"] = Steps
        if row.name == "mmca" and args.mmca_text == "bert":
            kinds["held sentences"] = Steps
        differences: dict[str, Any] = {}
        if not args.no_check:
            for precision in dict.fromkeys(("float32", args.precision)):
                differences[precision] = compared(recipe, precision, sizes, splits, place, device)
                release(device)
        trainers, peaks = {}, {}
        for name, kind in kinds.items():
            changed = {"compile": name.startswith("compiled"), "hold_sentences": name == "held sentences"}
            told = replace(recipe, training=replace(recipe.training, **changed))
            build = partial(built, kind, told, splits, place, name, device, sizes)
            if name.endswith("cuda-graphs"):
                build = partial(captured, build)
            trainers[name], peaks[name] = with_peak(build, args.warm_up, device)
            if name == "pools-aside":
                pools_aside(trainers[name])
            if name.startswith(("as it is", "compiled", "held sentences")):
                look_inside(trainers[name], batches_of(trainers[name]), args)
        times = in_turns({name: stepping(trainer) for name, trainer in trainers.items()}, args.steps, device)
        about = told_of(row, args)
        rows = []
        for name in kinds:
            found: dict[str, Any] = {
                "model": row.name,
                "contender": name,
                **times[name],
                "peak GiB": peaks[name],
                **about,
            }
            if name == "as it is":
                found["pairs that count alone"] = counts_alone(trainers[name])
                found["beside plain"] = differences
            rows.append(found)
            show(found)
        trainers.clear()
        release(device)
    return rows


def told_of(row: Row, args: argparse.Namespace) -> dict[str, str]:
    if row.name != "mmca":
        return {}
    return {"text": "BERT base, frozen, random weights" if args.mmca_text == "bert" else "a GRU in place of BERT"}


def feature_recipe(row: Row, sizes: Sizes, args: argparse.Namespace) -> Recipe:
    """A recipe of COCO with this benchmark's batches."""
    changes = [
        f"training.batch_size={sizes.batch}",
        "training.sampler=captions",
        f"training.precision={args.precision}",
        "training.drop_regions=0.0",
        "training.drop_words=0.0",
        "training.workers=0",
        f"training.hold_features={str(not args.from_host).lower()}",
        f"model.image.feature_dim={sizes.features}",
        *row.settings,
    ]
    if sizes.dim is not None:
        changes.append(f"model.dim={sizes.dim}")
    if row.name == "mmca" and args.mmca_text == "gru":
        changes.append('model.text={kind="gru"}')
    recipe = read_recipe(RECIPES / f"{row.recipe}.toml", assignments=tuple(changes))
    return replace(recipe, training=replace(recipe.training, score_rows=None))


def feature_splits(sizes: Sizes) -> Splits:
    """Pictures of random regions, each with a sentence of random words."""
    rng, count = np.random.default_rng(1), BATCHES * sizes.batch
    words = rng.integers(VOCABULARY - len(SPECIAL), size=(count, sizes.words - 2))  # and a start and an end
    items = [
        Item(str(i), sentences([" ".join(f"w{word}" for word in row)], str(i)), split="train", row=i)
        for i, row in enumerate(words)
    ]
    train = Collection("made", items, MadeFeatures(count, sizes.regions, sizes.features))
    return Splits(train, train.first(1), train.first(1))


def feature_matcher(recipe: Recipe, sizes: Sizes, folder: Path) -> Matcher:
    """The recipe's matcher with random weights, the same each time."""
    torch.manual_seed(0)
    config: Any = recipe.model
    tokenizer = WordTokenizer(Vocabulary([*SPECIAL, *(f"w{i}" for i in range(VOCABULARY - len(SPECIAL)))]))
    if config.text.kind != "transformer":
        return build_matcher(config, tokenizer)
    layers, width = (2, 64) if sizes == TOY else (12, 768)
    bert = BertConfig(VOCABULARY, width, layers, width // 64, 4 * width, 512)
    bert.save_pretrained(str(folder / "text_backbone"))
    return build_matcher(config, tokenizer, assets=folder)


def built(
    kind: type[Steps], recipe: Recipe, splits: Splits, folder: Path, name: str, device: torch.device, sizes: Sizes
) -> Steps:
    """A run over local features that has not begun."""
    return trainer_of(kind, recipe, splits, folder / name, device, feature_matcher(recipe, sizes, folder))


def captured(build: Callable[[], Steps]) -> Steps:
    """The same with what is compiled captured in CUDA graphs."""
    trainer, mode = build(), "reduce-overhead"
    backbone: Any = getattr(trainer.matcher.text_encoder, "backbone", None)
    if backbone is not None:
        backbone.compile(dynamic=True, mode=mode)
    for module in trainer.matcher.modules():
        if getattr(module, "compiles", False):
            module.compile(mode=mode)
    trainer.weighted_terms = torch.compile(weighted_terms, mode=mode)
    return trainer


def counts_alone(trainer: Steps) -> bool:
    """Whether scores of this size are computed without gradient first."""
    batch = batches_of(trainer)[0].to(trainer.fabric.device)
    images = batch.images if trainer.held_features is None else trainer.held_features.cut(batch.images)  # type: ignore[arg-type]
    kept = trainer.matcher(images, batch.texts)
    return "CountedScores" in type(trainer._scores(*kept).grad_fn).__name__


def compared(
    recipe: Recipe, precision: str, sizes: Sizes, splits: Splits, folder: Path, device: torch.device
) -> dict[str, Any]:
    """One step of the loop as it is beside one of all pairs, from the same weights."""
    training = replace(recipe.training, precision=precision, clip=None)  # type: ignore[arg-type]
    same = replace(recipe, training=training)
    found = []
    with matmul("highest" if precision == "float32" else "high"):
        for kind in (Steps, PlainSteps):
            trainer = built(kind, same, splits, folder, f"{precision}-{kind.__name__}", device, sizes)
            loss = float(trainer.step(batches_of(trainer)[0]).loss)
            gradients = {n: p.grad for n, p in trainer.matcher.named_parameters() if p.grad is not None}
            found.append((loss, gradients))
    (ours, mine), (plain, theirs) = found
    if mine.keys() != theirs.keys():
        raise SystemExit(f"{recipe.name}: other parameters have a gradient: {sorted(mine.keys() ^ theirs.keys())}")
    largest = max(float(g.abs().max()) for g in theirs.values())
    off = {}
    for name, gradient in theirs.items():
        # Some gradients are nothing but rounding, such as that of a bias that a softmax does not see.
        size = max(float(gradient.abs().max()), 1e-6 * largest)
        off[name] = float((mine[name] - gradient).abs().max()) / size
    worst = max(off, key=lambda name: off[name])
    result = {"loss": ours, "plain loss": plain, "gradient off": off[worst], "where": worst}
    result["median off"] = statistics.median(off.values())
    if precision == "float32" and (off[worst] > 1e-2 or abs(ours - plain) > 1e-4 * abs(plain)):
        raise SystemExit(f"{recipe.name}: not the plain path's step: {result}")
    return result


@contextmanager
def matmul(precision: str) -> Iterator[None]:
    """float32 products in another precision, and convolutions and recurrences with them."""
    before, cudnn = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision(precision)
    torch.backends.cudnn.allow_tf32 = precision != "highest"
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
        torch.backends.cudnn.allow_tf32 = cudnn
