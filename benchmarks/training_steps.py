"""What one step of training takes, beside the same step with all pairs scored with gradient, and its peak memory.

    python benchmarks/training_steps.py --device cuda              every row, in bf16, on a GPU
    python benchmarks/training_steps.py --only camp mmca --device cuda
    python benchmarks/training_steps.py --only end-to-end --device cuda --workers 8
    python benchmarks/training_steps.py --toy                      all of it in small, on a CPU

The recipes of COCO are taken as they are, with 128 captions a step, each with its own picture, on made data: random
features of 36 x 2048 that are held on the device, random sentences of 16 tokens. A step is the training loop's own:
encoding in half precision, scores, loss, backward pass, clipping, optimiser. Contenders are the loop as it is, and the
same loop where the matcher scores all pairs with gradient: at once, and for CAMP also 16 pictures at a time, computed
again in the backward pass. For DivE and MMCA also the loop compiled, and for MMCA with its BERT with sentences held.

Before they are timed, a step of the loop is compared with one over all pairs from the same weights: the loss, and for
each parameter the largest difference of its gradient over the largest number in it; in float32 without TF32, and in
half precision. Contenders take turns; a time is the median. Peak memory is of weights, optimiser and step, not of the
held data. With `--syncs` every place that waits for the GPU within a step is told. MMCA's BERT has random weights;
`--mmca-text gru` takes a GRU instead.

The row `end-to-end` tunes the architecture of the shipped model on made JPEG files as recipes/default.toml does, eager
and compiled, and tells which share of the time goes by in waiting for data. It needs the package
efficientnet_lite_pytorch for the architecture; weights come from the shipped model, word embeddings are random.
`--try` measures changes to it that are not in the package, several joined by +; cuda-graphs also changes DivE's and
MMCA's compiled steps, and pools-aside VSE∞'s. One JSON object at the end.
"""

import argparse
import io
import json
import logging
import math
import statistics
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from diptych.common.device import sent
from diptych.common.model_place import shipped_folder
from diptych.data.batches import Tokens
from diptych.data.collection import Collection, Item, Regions, sentences
from diptych.data.tokens import WordTokenizer, load_tokenizer
from diptych.data.vocabulary import SPECIAL, Vocabulary
from diptych.encoders.bert import BertConfig
from diptych.encoders.encoded import Encoded
from diptych.matchers.base import Matcher
from diptych.matchers.catalog import build_matcher
from diptych.matchers.kept import Kept
from diptych.training import counted_scores
from diptych.training.batches import Batch, iterate
from diptych.training.data import Splits
from diptych.training.data_share import DataShare
from diptych.training.log import Measured
from diptych.training.loop import Device, Trainer, launch
from diptych.training.losses.catalog import build_loss
from diptych.training.recipe import Recipe, read_recipe
from diptych.training.terms.catalog import weighted_terms
from scoring import VOCABULARY, device_name

RECIPES = Path(__file__).parent.parent / "recipes"
COMPILED = ("dive", "mmca")  # rows with something to compile
EPOCH = 10  # after the first epochs, in which some recipes take all negatives
BATCHES = 4  # different batches that steps go through
ROWS = 16  # pictures at a time, as CAMP's recipes had them


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
END_TO_END = "end-to-end"


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


class MadeFeatures:
    """Random regions."""

    def __init__(self, pictures: int, regions: int, dim: int) -> None:
        self.vectors = np.random.default_rng(0).standard_normal((pictures, regions, dim), dtype=np.float32)
        self.dim = dim

    def __len__(self) -> int:
        return len(self.vectors)

    def __getitem__(self, row: int) -> Regions:
        return Regions(self.vectors[row])


def main() -> None:
    args = arguments()
    sizes = TOY if args.toy else Sizes()
    device = torch.device(args.device)
    if args.threads:
        torch.set_num_threads(args.threads)
    logging.disable(logging.INFO)  # Lightning tells of its precision each time
    if args.toy or args.counted:
        counted_scores.PLAIN = 0  # else so few pairs would be scored with gradient at once
    torch.set_float32_matmul_precision("high")  # as a run sets it
    dynamo: Any = torch._dynamo.config
    dynamo.recompile_limit = 64  # contenders share their code, and each compiles it for itself
    rows: list[dict[str, Any]] = []
    told = f"{device_name(device)}, {args.precision}, {sizes.batch} captions a step"
    say(f"{told}\n{'model':14} {'contender':22} {'ms a step':>10} {'spread':>7} {'peak GiB':>9}  beside plain")
    for row in ROWS_OF_TABLE:
        if chosen(row.name, args):
            rows += feature_rows(row, sizes, device, args)
    if chosen(END_TO_END, args):
        rows += end_to_end(sizes, device, args)
    print(json.dumps({"device": told, "torch": torch.__version__, "sizes": vars(sizes), "rows": rows}))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="bf16", choices=["float32", "bf16", "fp16"])
    parser.add_argument("--only", nargs="*", help="rows whose names begin so")
    parser.add_argument("--toy", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--steps", type=int, help="timed steps of each contender; 30 on a GPU, 5 on a CPU")
    parser.add_argument("--warm-up", type=int, help="steps before; 10 on a GPU, 2 on a CPU")
    parser.add_argument("--no-check", action="store_true", help="do not compare gradients first")
    parser.add_argument("--no-plain", action="store_true", help="the loop as it is alone")
    parser.add_argument("--from-host", action="store_true", help="features come from main memory at each step")
    parser.add_argument("--syncs", action="store_true", help="tell what waits for the GPU within a step")
    parser.add_argument("--profile", action="store_true", help="tell which kernels a step's time goes to")
    parser.add_argument("--mmca-text", default="bert", choices=["bert", "gru"])
    parser.add_argument("--workers", type=int, default=0, help="of the end-to-end row's data")
    parser.add_argument("--no-data", action="store_true", help="leave out the share of time that data takes")
    parser.add_argument("--try", dest="tried", nargs="*", default=[], metavar="CHANGE", help=" ".join(TRIED))
    parser.add_argument("--counted", action="store_true", help="score without gradient first, however few pairs")
    parser.add_argument("--threads", type=int)
    args = parser.parse_args()
    unknown = {part for change in args.tried for part in change.split("+")} - TRIED.keys()
    if unknown:
        parser.error(f"--try: no {sorted(unknown)}; there are {sorted(TRIED)}, and several joined by +")
    large = args.device != "cpu"
    args.steps = args.steps or (30 if large else 5)
    args.warm_up = args.warm_up or (10 if large else 2)
    return args


def chosen(name: str, args: argparse.Namespace) -> bool:
    return not args.only or any(name.startswith(one) for one in args.only)


# The matchers over local features.


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


# Measuring.


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


# Tuning a backbone on pictures and one on sentences.


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
    """The shipped weights; word embeddings, which they are without, stay random."""
    from safetensors.torch import load_file

    found = matcher.load_state_dict(load_file(folder / "model.safetensors"), strict=False)
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


# Changes to the end-to-end step that are not in the package.


@dataclass(frozen=True)
class Change:
    """What is done to a matcher before it trains, or to the trainer after it is built."""

    before: Callable[[Matcher], None] | None = None
    after: Callable[[Steps], None] | None = None


def group_texts(count: int) -> Callable[[Matcher], None]:
    """The text encoder sees sentences in so many groups of like length, each padded to its own longest."""

    def change(matcher: Matcher) -> None:
        encoder = matcher.text_encoder
        plain = encoder.forward

        def forward(batch: Tokens) -> Encoded:
            lengths = batch.known_lengths
            order = lengths.argsort()
            vectors: list[Tensor] = []
            width = batch.ids.shape[1]
            for part in order.tensor_split(count):
                longest = -(-int(lengths[part].max()) // 8) * 8
                where = sent(part, batch.ids.device)
                told = plain(Tokens(batch.ids[where, :longest], batch.mask[where, :longest]))
                pads = width - told.vectors.shape[1]
                vectors.append(F.pad(told.vectors, (0, 0, 0, pads)))
            back = sent(order.argsort(), batch.ids.device)
            together = torch.cat(vectors)[back]
            return Encoded(together, batch.mask, together[:, 0], together)

        encoder.forward = forward  # type: ignore[method-assign]

    return change


def contiguous(trainer: Steps) -> None:
    """Convolutions over (channels, height, width) in that order."""
    backbone: Any = trainer.matcher.image_encoder.backbone
    backbone.to(memory_format=torch.contiguous_format)
    backbone.register_forward_pre_hook(lambda _, inputs: (inputs[0].contiguous(),))


def compile_mode(mode: str) -> Callable[[Steps], None]:
    """The vision backbone compiled in another mode."""

    def change(trainer: Steps) -> None:
        backbone: Any = trainer.matcher.image_encoder.backbone
        backbone.compile(dynamic=False, mode=mode)

    return change


def compiled_views(trainer: Steps) -> None:
    """Cutting views of held pictures compiled too."""
    assert trainer.held is not None
    trainer.held.cut = torch.compile(trainer.held.cut, dynamic=False)  # type: ignore[method-assign]


def compiled_pools(trainer: Steps) -> None:
    """Pooling compiled as well: the sorting and weighing of all cells and words."""
    for gpo in trainer.matcher.pools().values():
        gpo._theta = torch.compiler.disable(gpo._theta)  # type: ignore[method-assign]
        gpo.compile(dynamic=True)


def pools_aside(trainer: Steps) -> None:
    """The coefficients of pooling depend on its weights alone: another stream computes them beside the backbones."""
    if trainer.fabric.device.type != "cuda":
        return
    aside, plain, pools = torch.cuda.Stream(), trainer.step, trainer.matcher.pools()
    tables: dict[str, Tensor] = {}
    for side, gpo in pools.items():

        def theta(values: Tensor, mask: Tensor, side: str = side) -> Tensor:
            torch.cuda.current_stream().wait_stream(aside)
            return tables[side][mask.sum(1).clamp(min=1) - 1][:, : mask.shape[1]]

        gpo._theta = theta  # type: ignore[method-assign]

    def step(batch: Batch) -> Measured:
        regions = batch.images.mask.shape[1] if hasattr(batch.images, "mask") else math.prod(grid_of(trainer))
        sides = {"pictures": regions, "sentences": batch.texts.ids.shape[1]}
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for side, gpo in pools.items():
                tables[side] = gpo.every_size(sides[side])
                tables[side].record_stream(torch.cuda.current_stream())
        return plain(batch)

    trainer.step = step  # type: ignore[method-assign]


def grid_of(trainer: Steps) -> tuple[int, int]:
    backbone: Any = trainer.matcher.image_encoder.backbone
    rows, columns = backbone.grid
    return rows, columns


class Folded(nn.Module):
    """A convolution whose weights are those of a BatchNorm of fixed statistics too: nothing of it is left to save."""

    def __init__(self, convolution: Any, norm: Any, shifted: bool) -> None:
        super().__init__()
        self.convolution, self.norm, self.shifted = convolution, norm, shifted

    def forward(self, x: Tensor) -> Tensor:
        """(n, channels, height, width)."""
        conv, norm = self.convolution, self.norm
        weight, bias = conv.weight, None
        if norm is not None:
            scale = norm.weight * (norm.running_var + norm.eps).rsqrt()
            weight, bias = weight * scale.view(-1, 1, 1, 1), norm.bias - norm.running_mean * scale
        if not self.shifted or conv.groups == 1:
            x = conv.static_padding(x)
            return F.conv2d(x, weight, bias, conv.stride, conv.padding, conv.dilation, conv.groups)
        return shifted_sum(x, weight.to(x.dtype), None if bias is None else bias.to(x.dtype), conv)


def shifted_sum(x: Tensor, weight: Tensor, bias: Tensor | None, conv: Any) -> Tensor:
    """A depthwise convolution as a sum of shifted products, which the compiler makes one kernel of."""
    (height, width), stride = conv.kernel_size, conv.stride[0]
    down, across = conv.padding
    x = F.pad(conv.static_padding(x), (across, across, down, down))
    rows, columns = ((size - kernel) // stride + 1 for size, kernel in zip(x.shape[2:], (height, width), strict=True))
    total: Tensor | None = None
    for i in range(height):
        for j in range(width):
            part = x[:, :, i : i + stride * (rows - 1) + 1 : stride, j : j + stride * (columns - 1) + 1 : stride]
            part = part * weight[:, 0, i, j].view(1, -1, 1, 1)
            total = part if total is None else total + part
    assert total is not None
    return total if bias is None else total + bias.view(1, -1, 1, 1)


def convolved(norms: bool, shifted: bool) -> Callable[[Matcher], None]:
    """BatchNorm taken into the convolutions, depthwise convolutions as sums, or both."""

    def change(matcher: Matcher) -> None:
        model: Any = matcher.image_encoder.backbone.model  # type: ignore[union-attr]
        pairs = [(model, "_conv_stem", "_bn0"), (model, "_conv_head", "_bn1")]
        for block in model._blocks:
            pairs += [
                (block, "_expand_conv", "_bn0"), (block, "_depthwise_conv", "_bn1"), (block, "_project_conv", "_bn2")
            ]  # fmt: skip
        for owner, convolution, norm in pairs:
            if hasattr(owner, convolution):
                folded = Folded(getattr(owner, convolution), getattr(owner, norm) if norms else None, shifted)
                setattr(owner, convolution, folded)
                if norms:
                    setattr(owner, norm, nn.Identity())

    return change


TRIED = {
    "text-groups-2": Change(before=group_texts(2)),
    "text-groups-4": Change(before=group_texts(4)),
    "contiguous": Change(after=contiguous),
    "max-autotune": Change(after=compile_mode("max-autotune-no-cudagraphs")),
    "cuda-graphs": Change(after=compile_mode("reduce-overhead")),
    "compiled-views": Change(after=compiled_views),
    "compiled-pools": Change(after=compiled_pools),
    "pools-aside": Change(after=pools_aside),
    "folded": Change(before=convolved(norms=True, shifted=False)),
    "shifted": Change(before=convolved(norms=False, shifted=True)),
    "folded-shifted": Change(before=convolved(norms=True, shifted=True)),
}


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


if __name__ == "__main__":
    main()
