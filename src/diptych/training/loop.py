"""The training loop: a recipe in, a run folder out. Killed anywhere, it goes on from its last checkpoint."""

import atexit
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from diptych.common.device import pick_device, processes_of
from diptych.common.errors import DiptychError
from diptych.common.fused import has_kernels
from diptych.common.precision import half_of, scored_in
from diptych.common.process_group import before_group, end_group
from diptych.common.progress import progress_bar, span
from diptych.matchers.base import Matcher
from diptych.matchers.kept import Kept
from diptych.training.accumulation import (
    Parts,
    Sides,
    average_over_processes,
    tell_statistics,
    untouched_statistics,
)
from diptych.training.average import WeightAverage
from diptych.training.batches import Augmentation, Batch, Pair, RunDataset, epoch_batches, iterate
from diptych.training.card import model_card
from diptych.training.checkpoints import Position, Trained, has_checkpoint, load_checkpoint, save_checkpoint
from diptych.training.claim import check_claim, claim, locked
from diptych.training.collapse import CollapseWatch, collapse_sentence
from diptych.training.compiled import columns, compile_modules, uncompiled
from diptych.training.counted_scores import batch_scores
from diptych.training.data import Splits, load_splits
from diptych.training.data_share import DataShare
from diptych.training.environment import Environment
from diptych.training.gather import gather
from diptych.training.gradients import clip_gradients, loss_scaler
from diptych.training.held_features import HeldFeatures, HeldRows, hold_splits
from diptych.training.held_pictures import HeldPictures, Views, decode_pixels
from diptych.training.held_sentences import HeldSentences
from diptych.training.log import Measured, TrainingLog
from diptych.training.losses.base import Loss
from diptych.training.losses.catalog import build_loss
from diptych.training.neighbours import find_neighbours
from diptych.training.optimisation import (
    build_optimiser,
    check_prefixes,
    longest_prefix,
    lr_factor,
    set_learning_rate,
)
from diptych.training.patience import out_of_patience, waited
from diptych.training.recipe import Recipe
from diptych.training.signals import StopRequest
from diptych.training.start import build_for, take_weights
from diptych.training.terms.catalog import weighted_terms
from diptych.training.time_left import TimeLeft
from diptych.training.trackers import build_trackers
from diptych.training.validation import validate

READ_STEPS = 16  # losses that are read at once where reading one waits for a GPU
Ending = Literal["epochs", "patience", "judge", "signal"]
Judge = Callable[[int, dict[str, float]], bool]  # an epoch, from 1, and its figures: whether to go on
PRECISIONS = {"float32": "32-true", "bf16": "bf16-mixed", "fp16": "16-mixed"}


@dataclass(frozen=True)
class Device:
    """Where to train, and with how many processes of this machine.

    accelerator: `auto`, `cpu` or `cuda`, or with one process `cuda:1`
    devices: how many processes; torchrun's number wins

    >>> Device("cpu"), Device("cuda", devices=2)
    (Device(accelerator='cpu', devices=1), Device(accelerator='cuda', devices=2))
    """

    accelerator: str = "auto"
    devices: int = 1


@dataclass(frozen=True)
class Outcome:
    """How a run ended; `speaks` is true of the one process that tells people about it.

    ended: what ended it: its last epoch, its patience, a judge, or a signal (or the end of its time), after which it
        is not finished

    >>> outcome = train(read_recipe(Path("recipe.toml")), Path("another-run"), Device("cpu"))
    >>> outcome.position.epoch, "rsum" in outcome.figures
    (1, True)
    """

    run: Path
    position: Position
    finished: bool
    figures: dict[str, float]
    speaks: bool
    ended: Ending = "epochs"


def train(
    recipe: Recipe,
    run: Path,
    device: Device | None = None,
    splits: Splits | None = None,
    init_from: str | None = None,
    judge: Judge | None = None,
    until: float | None = None,
) -> Outcome:
    """Train a recipe into the folder `run`, or go on where that run stopped.

    init_from: a run or a saved matcher whose weights a new run begins with; one that goes on has its own
    judge: asked after each evaluation whether to go on, of one process
    until: when to stop as if asked to, on the clock of `time.monotonic`

    >>> outcome = train(read_recipe(Path("recipe.toml")), Path("run"), Device("cpu"))
    >>> outcome.finished, sorted(path.name for path in Path("run").glob("*/config.json"))
    (True, ['config.json', 'config.json'])
    """
    fabric = launch(recipe, device or Device())
    torch.set_float32_matmul_precision("high")
    with locked(run) if fabric.is_global_zero else nullcontext():
        check_claim(run, recipe)
        fabric.barrier()
        splits = splits or load_splits(recipe.data)
        torch.manual_seed(recipe.training.seed)
        matcher = build_for(recipe, splits)
        if init_from is not None and not has_checkpoint(run):
            take_weights(matcher, init_from)
        loss_function = build_loss(recipe.loss)
        trainer = Trainer(fabric, recipe, run, splits, matcher, loss_function, init_from, judge, until)
        if fabric.is_global_zero:
            claim(run, recipe)
        return trainer.run_all()


def launch(recipe: Recipe, device: Device) -> Any:
    """Lightning Fabric in the recipe's precision, its processes begun."""
    try:
        from lightning.fabric import Fabric
    except ImportError:
        try:
            from lightning_fabric import Fabric  # the same, where pytorch-lightning is installed instead
        except ImportError:
            raise DiptychError("training needs Lightning Fabric; install diptych[train]") from None
    place = pick_device(device.accelerator)
    processes = processes_of("WORLD_SIZE", 1)
    several = device.devices > 1 or processes > 1
    # Fabric's own children have a WORLD_SIZE, but no LOCAL_WORLD_SIZE.
    here = processes_of("LOCAL_WORLD_SIZE", device.devices)
    named = place.type != "cpu" and place.index is not None
    if named and several:
        raise DiptychError(f"{device.accelerator!r} is one device, and there are several processes", where="device")
    fabric = Fabric(
        accelerator=place.type,
        devices=[place.index] if named else here,
        num_nodes=max(1, processes // here),
        strategy="ddp" if several else "auto",
        precision=PRECISIONS[recipe.training.precision],
    )
    if several:
        before_group()
        atexit.register(end_group)  # Fabric sees to NCCL's alone
    fabric.launch()
    return fabric


class Box:
    """A batch, or what was kept of it, that Fabric hands through as it is: it takes dataclasses apart."""

    def __init__(self, content: Any) -> None:
        self.content = content


class BothSides(nn.Module):
    """Both encoders in one forward pass, which is what several processes synchronise on."""

    def __init__(self, matcher: Matcher) -> None:
        super().__init__()
        self.matcher = matcher

    def forward(self, box: Box) -> Box:
        """Batch in, kept pictures and sentences out."""
        return Box(self.matcher(box.content.images, box.content.texts))


class Trainer:
    """One run: the loop, and what it needs."""

    def __init__(
        self,
        fabric: Any,
        recipe: Recipe,
        run: Path,
        splits: Splits,
        matcher: Matcher,
        loss_function: Loss,
        init_from: str | None = None,
        judge: Judge | None = None,
        until: float | None = None,
    ) -> None:
        self.fabric, self.recipe, self.run = fabric, recipe, run
        self.config = recipe.training
        if fabric.world_size > 1 and fabric.device.type == "cuda":
            matcher = nn.SyncBatchNorm.convert_sync_batchnorm(matcher)
        self.matcher = matcher.to(fabric.device)
        if fabric.device.type == "cuda" and not matcher.takes_features:
            # Twice as fast for convolutions.
            matcher.image_encoder.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.loss_function = loss_function.to(fabric.device)
        check_prefixes(matcher, list(self.config.frozen_epochs), "frozen_epochs")
        optimiser = build_optimiser(self.config.optimiser, matcher, loss_function, self.config.multipliers)
        decay = self.config.average
        self.average = None if decay is None else WeightAverage(self.matcher, decay)
        self.trained = Trained(self.matcher, optimiser, self.loss_function, self.average, loss_scaler(fabric))
        before = load_checkpoint(run, self.trained)
        self.position = before or Position()
        if self.config.compile:
            compile_modules(self.matcher)
        self.weighted_terms = torch.compile(weighted_terms) if self.config.compile else weighted_terms
        self.module, self.optimiser = fabric.setup(BothSides(self.matcher), optimiser)
        self.figures: dict[str, float] = {}
        self.stop = StopRequest(until)
        self.judge, self.judged_out = judge, False
        self.time_left = TimeLeft()
        self.collapse, self.told = CollapseWatch(), False
        self.environment = None
        if fabric.is_global_zero:
            self.environment = Environment(run, self.position.total, fabric.world_size, fabric.device, init_from)
        every = READ_STEPS if fabric.device.type == "cuda" else 1
        tells = fabric.is_global_zero and self._ended() is None
        trackers = build_trackers(recipe, run, self.position.total) if tells else []
        self.data = DataShare()
        self.log = TrainingLog(run, fabric.is_global_zero, trackers, self.position.total, every)
        preprocess = matcher.preprocess
        self.held = self.held_validation = None
        if self.config.hold_pictures is not None:
            if preprocess is None:
                raise DiptychError("training.hold_pictures: this matcher takes local features, not pictures")
            place = (fabric.device, self.config.workers)
            self.held = HeldPictures.decode(splits.train, preprocess, self.config.hold_pictures, *place)
            self.held_validation = [decode_pixels(part, preprocess, *place) for part in splits.validations]
        self.held_features = None
        if self.config.hold_features or isinstance(splits.train.features, HeldFeatures):
            if preprocess is not None:
                raise DiptychError("training.hold_features: this matcher takes pictures, not local features")
            splits = hold_splits(splits, fabric.device)
            assert isinstance(splits.train.features, HeldFeatures)
            self.held_features = splits.train.features
        self.held_sentences = None
        if self.config.hold_sentences:
            with uncompiled(self.config.compile):  # read once, which compiling would not pay for
                self.held_sentences = HeldSentences.read(splits.train, self.matcher, half_of(self.config.precision))
        self.splits = splits
        # What is on the device stays with this process; those that prepare batches only say what to take of it.
        self.prepared = splits.train if self.held_features is None else replace(splits.train, features=None)
        self.dataset = RunDataset(
            self.prepared,
            matcher.tokenizer,
            preprocess,
            Augmentation(self.config.drop_regions, self.config.drop_words, self.config.augment, self.config.foils),
            self._batches(),
            self.config.seed,
            fabric.global_rank,
            fabric.world_size,
            self.config.hold_pictures,
            columns(matcher) if self.config.compile else 1,
            None if self.held_features is None else self.held_features.starts,
            None if self.held_sentences is None else self.held_sentences.starts,
        )

    def _batches(self) -> partial[list[list[Pair]]]:
        """An epoch to its batches."""
        alike, near = None, self.config.neighbours
        if near is not None:
            alike = find_neighbours(near, self.splits.train, self.held, self.fabric.device)
        return partial(
            epoch_batches,
            self.prepared,
            self.config.sampler,
            self.config.batch_size,
            self.config.seed,
            alike=alike,
            group=1 if near is None else near.group,
        )

    def run_all(self) -> Outcome:
        """Train to the end of the recipe, or until asked to stop."""
        batches = iterate(
            self.dataset, self.position.epoch, self.position.step, self.config.epochs, self.config.workers
        )
        if self.environment is not None and self.position.epoch < self.config.epochs:
            self.environment.write(self.position.total)
        ended: Ending | None = None
        if self.config.accumulate > 1 and self.fabric.is_global_zero:
            tell_statistics(self.module.train())
        with self.stop.listening():
            while (ended := self._ended()) is None:
                self._epoch(batches)
            batches.close()  # ends the workers
        self.log.close()
        self.fabric.barrier()
        return Outcome(self.run, self.position, ended != "signal", self.figures, self.fabric.is_global_zero, ended)

    def _ended(self) -> Ending | None:
        """Whether the run is at an end, and why."""
        if self.stop.asked:
            return "signal"
        if self.position.epoch >= self.config.epochs:
            return "epochs"
        if out_of_patience(self.config, self.position):
            return "patience"
        return "judge" if self.judged_out else None

    def _epoch(self, batches: Iterator[Batch]) -> None:
        epoch, steps = self.position.epoch, len(self.dataset.batches(self.position.epoch))
        self.module.train()
        self.data.begin()
        with progress_bar("steps") as bar:
            task = bar.add_task(f"epoch {epoch + 1}/{self.config.epochs}", total=steps, note="")
            bar.advance(task, self.position.step)
            while self.position.step < steps:
                batch = self.data.take(batches)
                progress = epoch + self.position.step / steps
                set_learning_rate(self.optimiser, lr_factor(self.config.schedule, progress, self.config.epochs))
                measured = self._step(batch, epoch)
                self.position = replace(self.position, step=self.position.step + 1, total=self.position.total + 1)
                self.log.step(self.position.total, measured, self.optimiser.param_groups[0]["lr"], epoch)
                self.time_left.mark("step")
                told = f"loss {self.log.loss:.4f}, {self._waiting()}{self._left(', whole run ')}"
                bar.update(task, advance=1, note=told)
                every = self.config.checkpoint_steps
                due = every is not None and self.position.total % every == 0
                if self._stopping() or (due and self.position.step < steps):
                    self._save()
                if self.stop.asked:
                    return
        self._end_of_epoch()

    def _step(self, batch: Batch, epoch: int) -> Measured:
        """One optimiser step; returns its loss and gradient.

        Nothing in it waits for the device, but for the question which pairs count, once the forward pass is done.
        """
        self._draw_from()
        batch = batch.to(self.fabric.device)
        if isinstance(batch.images, Views):
            assert self.held is not None
            batch = replace(batch, images=self.held.cut(batch.images))
        elif isinstance(batch.images, HeldRows):
            assert self.held_features is not None
            batch = replace(batch, images=self.held_features.cut(batch.images))
        if isinstance(batch.texts, HeldRows):
            assert self.held_sentences is not None
            batch = replace(batch, texts=self.held_sentences.cut(batch.texts))
        self.optimiser.zero_grad(set_to_none=True)
        parts = Parts(batch, self.config.accumulate, self._encode_part) if self.config.accumulate > 1 else None
        if parts is None:
            images, texts = self.module(Box(batch)).content
        else:
            with untouched_statistics(self.matcher):
                images, texts = parts.kept()
            self._draw_from()
        # Scores decide which negative is hardest: they are computed in float32 whatever the encoders ran in.
        whole = gather(images.to(dtype=torch.float32), texts.to(dtype=torch.float32), batch.picture_ids, batch.owners)
        scores = self._scores(whole.images, whole.texts)
        loss = self.loss_function(scores, whole.owners, whole.positive, epoch)
        self.collapse.step(loss, self.loss_function.collapsed(len(whole.owners), epoch))
        terms: dict[str, Tensor] = {}
        if self.config.terms:
            captions = whole.texts[: len(whole.owners)]
            terms = self.weighted_terms(self.config.terms, whole.images, captions, self.recipe.model.kind)
            terms, loss = {self.recipe.loss.kind: loss, **terms}, loss + torch.stack(list(terms.values())).sum()
        self.fabric.backward(loss)
        if parts is not None:
            parts.backward()
            if self.fabric.world_size > 1:
                average_over_processes(self.matcher)
        self._freeze(epoch)
        norm = clip_gradients(self.trained.optimiser, self.config.clip, self.trained.scaler)
        self.optimiser.step()
        if self.average is not None:
            self.average.update()
        return Measured(loss.detach(), norm, {name: value.detach() for name, value in terms.items()})

    def _draw_from(self, *part: int) -> None:
        """Dropout draws from (seed, step, process) alone, and the part of the batch where it has parts, so that a
        resumed run draws what an unbroken one would have, and a part the same each time that it is encoded."""
        draw = np.random.default_rng([self.config.seed, self.position.total, self.fabric.global_rank, *part])
        torch.manual_seed(int(draw.integers(2**62)))

    def _encode_part(self, number: int, part: Batch) -> Sides:
        self._draw_from(1 + number)  # 0 would be the draw of the step itself
        with self.fabric.no_backward_sync(self.module):
            images, texts = self.module(Box(part)).content
        return images.to(dtype=torch.float32), texts.to(dtype=torch.float32)

    def _scores(self, images: Kept, texts: Kept) -> Tensor:
        return batch_scores(
            self.matcher,
            images,
            texts,
            logits=self.loss_function.takes_logits,
            half=half_of(self.config.precision),
            rows=self.config.score_rows,
        )

    def _freeze(self, epoch: int) -> None:
        frozen = [prefix for prefix, epochs in self.config.frozen_epochs.items() if epoch < epochs]
        if frozen:
            for name, parameter in self.matcher.named_parameters():
                if longest_prefix(name, frozen) is not None:
                    parameter.grad = None

    def _end_of_epoch(self) -> None:
        """Go to the next epoch; evaluate where it is due, and keep the best."""
        self.log.read()
        waiting = self._waiting()
        done = self.position.epoch + 1
        self._tell_collapse(done)
        self.position = replace(self.position, epoch=done, step=0)
        if done % self.config.evaluate_epochs and done < self.config.epochs:
            return
        self.fabric.barrier()
        averaged = nullcontext() if self.average is None else self.average.in_place()
        with averaged, uncompiled(self.config.compile):
            figures = validate(self.matcher, self.splits.validations, self.held_validation, self._scored_in())
        self.figures = figures
        better = figures["rsum"] > self.position.best_rsum
        if better:
            self.position = replace(self.position, best_rsum=figures["rsum"], best_epoch=done - 1)
        self.log.evaluation(self.position.total, done - 1, figures)
        self._save(better)
        self.time_left.mark("evaluation")
        self.judged_out = self.judge is not None and not self.judge(done, figures)
        if self.fabric.is_global_zero:
            self._tell_epoch(done, figures["rsum"], better, waiting)

    def _tell_epoch(self, done: int, rsum: float, better: bool, waiting: str) -> None:
        """A line for each evaluation: how good, how long still, and why the run ends here where it does."""
        mark, patience = " (best)" if better else "", self.config.patience
        if not better and patience is not None:
            since = (
                f"epoch {self.position.best_epoch + 1}, {waited(self.position)} of {patience} epochs of patience gone"
            )
            mark = f"; the best is still {self.position.best_rsum:.1f} of {since}"
        ending = self._ended()
        left = "; stopping early: training.patience is used up" if ending == "patience" else ""
        if ending is None:
            left = self._left("; at most " if patience is not None else "; ")
        print(f"epoch {done}/{self.config.epochs}: validation rsum {rsum:.1f}{mark}{left}; {waiting}", file=sys.stderr)

    def _scored_in(self) -> torch.dtype | None:
        """What validation computes scores in: half precision where the run is in it and a GPU has kernels."""
        return scored_in(self.config.precision) if has_kernels(self.fabric.device) else None

    def _waiting(self) -> str:
        """How much of this epoch's time went by in waiting for data, in words."""
        return f"{self.data.share():.0%} of the time waiting for data"

    def _left(self, before: str) -> str:
        """How long the whole run will still take, in words, where that is known."""
        steps, every = len(self.dataset.batches(self.position.epoch)), self.config.evaluate_epochs
        epochs = range(self.position.epoch + 1, self.config.epochs + 1)
        evaluations = sum(epoch % every == 0 or epoch == self.config.epochs for epoch in epochs)
        seconds = self.time_left.seconds(steps * len(epochs) - self.position.step, evaluations)
        return "" if seconds is None else f"{before}{span(seconds)} left"

    def _tell_collapse(self, done: int) -> None:
        """Say once of a run that it has collapsed."""
        if self.collapse.epoch() and not self.told:
            self.told = True
            if self.fabric.is_global_zero:
                print(collapse_sentence(done, self.log.loss), file=sys.stderr)

    def _save(self, best: bool = False) -> None:
        self.log.read()
        if self.environment is not None:
            card = model_card(self.recipe, self.position, self.figures)
            save_checkpoint(self.run, self.trained, self.position, card, best)
            self.environment.write(self.position.total)
        self.fabric.barrier()

    def _stopping(self) -> bool:
        """Whether any process was asked to stop, or has no time left."""
        self.stop.look()
        if self.fabric.world_size > 1:
            asked = self.fabric.all_reduce(torch.tensor(float(self.stop.asked)), reduce_op="sum")
            self.stop.asked = bool(asked > 0)
        return self.stop.asked


def outcome_tree(outcome: Outcome) -> dict[str, Any]:
    """An outcome as plain data."""
    return {
        "run": str(outcome.run),
        "finished": outcome.finished,
        "ended": outcome.ended,
        **asdict(outcome.position),
        "validation": outcome.figures,
    }
