"""The training loop: a recipe in, a run folder out. Killed anywhere, it goes on from its last checkpoint."""

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from diptych.common.device import pick_device
from diptych.common.errors import DiptychError
from diptych.common.progress import progress_bar
from diptych.matchers.base import Matcher
from diptych.training.average import WeightAverage
from diptych.training.batches import Augmentation, Batch, RunDataset, epoch_batches, iterate
from diptych.training.card import model_card
from diptych.training.checkpoints import Position, Trained, has_checkpoint, load_checkpoint, save_checkpoint
from diptych.training.claim import check_claim, claim, locked
from diptych.training.collapse import CollapseWatch, collapse_sentence
from diptych.training.compiled import columns, compile_backbones, uncompiled
from diptych.training.data import Splits, load_splits
from diptych.training.environment import Environment
from diptych.training.gather import gather
from diptych.training.gradients import clip_gradients, loss_scaler
from diptych.training.held_pictures import HeldPictures, Views, decode_pixels
from diptych.training.log import Measured, TrainingLog
from diptych.training.losses.base import Loss
from diptych.training.losses.catalog import build_loss
from diptych.training.optimisation import (
    build_optimiser,
    check_prefixes,
    longest_prefix,
    lr_factor,
    set_learning_rate,
)
from diptych.training.recipe import Recipe
from diptych.training.signals import StopRequest
from diptych.training.start import build_for, take_weights
from diptych.training.terms.catalog import weighted_terms
from diptych.training.validation import validate

READ_STEPS = 16  # losses that are read at once where reading one waits for a GPU
PRECISIONS = {"float32": "32-true", "bf16": "bf16-mixed", "fp16": "16-mixed"}


@dataclass(frozen=True)
class Device:
    """Where to train, and with how many processes of this machine.

    accelerator: `auto`, `cpu` or `cuda`, or with one process `cuda:1`
    devices: how many processes; torchrun's number wins
    """

    accelerator: str = "auto"
    devices: int = 1


@dataclass(frozen=True)
class Outcome:
    """How a run ended; `speaks` is true of the one process that tells people about it."""

    run: Path
    position: Position
    finished: bool
    figures: dict[str, float]
    speaks: bool


def train(
    recipe: Recipe,
    run: Path,
    device: Device | None = None,
    splits: Splits | None = None,
    init_from: str | None = None,
) -> Outcome:
    """Train a recipe into the folder `run`, or go on where that run stopped.

    init_from: a run or a saved matcher whose weights a new run begins with; one that goes on has its own
    """
    fabric = _launch(recipe, device or Device())
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
        trainer = Trainer(fabric, recipe, run, splits, matcher, loss_function, init_from)
        if fabric.is_global_zero:
            claim(run, recipe)
        return trainer.run_all()


def _launch(recipe: Recipe, device: Device) -> Any:
    try:
        from lightning.fabric import Fabric
    except ImportError:
        try:
            from lightning_fabric import Fabric  # the same, where pytorch-lightning is installed instead
        except ImportError:
            raise DiptychError("training needs Lightning Fabric; install diptych[train]") from None
    place = pick_device(device.accelerator)
    several = device.devices > 1 or int(_environment("WORLD_SIZE", "1")) > 1
    # Fabric's own children have a WORLD_SIZE, but no LOCAL_WORLD_SIZE.
    here = int(_environment("LOCAL_WORLD_SIZE", str(device.devices)))
    named = place.type != "cpu" and place.index is not None
    if named and several:
        raise DiptychError(f"{device.accelerator!r} is one device, and there are several processes", where="device")
    fabric = Fabric(
        accelerator=place.type,
        devices=[place.index] if named else here,
        num_nodes=max(1, int(_environment("WORLD_SIZE", "1")) // here),
        strategy="ddp" if several else "auto",
        precision=PRECISIONS[recipe.training.precision],
    )
    fabric.launch()
    return fabric


def _environment(name: str, default: str) -> str:
    import os

    return os.environ.get(name, default)


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
    ) -> None:
        self.fabric, self.recipe, self.run, self.splits = fabric, recipe, run, splits
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
            compile_backbones(self.matcher)
        self.module, self.optimiser = fabric.setup(BothSides(self.matcher), optimiser)
        self.figures: dict[str, float] = {}
        self.stop = StopRequest()
        self.collapse, self.told = CollapseWatch(), False
        self.environment = None
        if fabric.is_global_zero:
            self.environment = Environment(run, self.position.total, fabric.world_size, fabric.device, init_from)
        every = READ_STEPS if fabric.device.type == "cuda" else 1
        self.log = TrainingLog(run, fabric.is_global_zero, self.config.tensorboard, self.position.total, every)
        preprocess = matcher.preprocess
        self.held = self.held_validation = None
        if self.config.hold_pictures is not None:
            if preprocess is None:
                raise DiptychError("training.hold_pictures: this matcher takes local features, not pictures")
            place = (fabric.device, self.config.workers)
            self.held = HeldPictures.decode(splits.train, preprocess, self.config.hold_pictures, *place)
            self.held_validation = [decode_pixels(part, preprocess, *place) for part in splits.validations]
        self.dataset = RunDataset(
            splits.train,
            matcher.tokenizer,
            preprocess,
            Augmentation(self.config.drop_regions, self.config.drop_words, self.config.augment),
            partial(epoch_batches, splits.train, self.config.sampler, self.config.batch_size, self.config.seed),
            self.config.seed,
            fabric.global_rank,
            fabric.world_size,
            self.config.hold_pictures,
            columns(matcher) if self.config.compile else 1,
        )

    def run_all(self) -> Outcome:
        """Train to the end of the recipe, or until asked to stop."""
        batches = iterate(
            self.dataset, self.position.epoch, self.position.step, self.config.epochs, self.config.workers
        )
        if self.environment is not None and self.position.epoch < self.config.epochs:
            self.environment.write(self.position.total)
        with self.stop.listening():
            while self.position.epoch < self.config.epochs and not self.stop.asked and not self._out_of_patience():
                self._epoch(batches)
            batches.close()  # ends the workers
        finished = not self.stop.asked
        self.log.close()
        self.fabric.barrier()
        return Outcome(self.run, self.position, finished, self.figures, self.fabric.is_global_zero)

    def _out_of_patience(self) -> bool:
        patience, done = self.config.patience, self.position.epoch
        if patience is None or self.position.step or done % self.config.evaluate_epochs:
            return False
        return done > 0 and done - 1 - self.position.best_epoch >= patience

    def _epoch(self, batches: Iterator[Batch]) -> None:
        epoch, steps = self.position.epoch, len(self.dataset.batches(self.position.epoch))
        self.module.train()
        with progress_bar("steps") as bar:
            task = bar.add_task(f"epoch {epoch + 1}/{self.config.epochs}", total=steps, note="")
            bar.advance(task, self.position.step)
            while self.position.step < steps:
                batch = next(batches)
                progress = epoch + self.position.step / steps
                set_learning_rate(self.optimiser, lr_factor(self.config.schedule, progress, self.config.epochs))
                measured = self._step(batch, epoch)
                self.position = replace(self.position, step=self.position.step + 1, total=self.position.total + 1)
                self.log.step(self.position.total, measured, self.optimiser.param_groups[0]["lr"], epoch)
                bar.update(task, advance=1, note=f"loss {self.log.loss:.4f}")
                every = self.config.checkpoint_steps
                due = every is not None and self.position.total % every == 0
                if self._stopping() or (due and self.position.step < steps):
                    self._save()
                if self.stop.asked:
                    return
        self._end_of_epoch()

    def _step(self, batch: Batch, epoch: int) -> Measured:
        """One optimiser step; returns its loss and gradient. Nothing in it waits for the device."""
        # Dropout draws from (seed, step, process) alone, so a resumed run draws what an unbroken one would have.
        draw = np.random.default_rng([self.config.seed, self.position.total, self.fabric.global_rank])
        torch.manual_seed(int(draw.integers(2**62)))
        batch = batch.to(self.fabric.device)
        if isinstance(batch.images, Views):
            assert self.held is not None
            batch = replace(batch, images=self.held.cut(batch.images))
        self.optimiser.zero_grad(set_to_none=True)
        images, texts = self.module(Box(batch)).content
        # Scores decide which negative is hardest: they are computed in float32 whatever the encoders ran in.
        whole = gather(images.to(dtype=torch.float32), texts.to(dtype=torch.float32), batch.picture_ids, batch.owners)
        scores = self._scores(whole.images, whole.texts)
        loss = self.loss_function(scores, whole.owners, whole.positive, epoch)
        self.collapse.step(loss, self.loss_function.collapsed(len(whole.owners), epoch))
        terms: dict[str, Tensor] = {}
        if self.config.terms:
            terms = weighted_terms(self.config.terms, whole.images, whole.texts, self.recipe.model.kind)
            terms, loss = {self.recipe.loss.kind: loss, **terms}, loss + torch.stack(list(terms.values())).sum()
        self.fabric.backward(loss)
        self._freeze(epoch)
        norm = clip_gradients(self.trained.optimiser, self.config.clip, self.trained.scaler)
        self.optimiser.step()
        if self.average is not None:
            self.average.update()
        return Measured(loss.detach(), norm, {name: value.detach() for name, value in terms.items()})

    def _scores(self, images: Any, texts: Any) -> Tensor:
        score = self.matcher.logits if self.loss_function.takes_logits else self.matcher.score
        rows = self.config.score_rows
        if rows is None:
            return score(images, texts)
        parts = [
            checkpoint(score, images[start : start + rows], texts, use_reentrant=False)
            for start in range(0, len(images), rows)
        ]
        return torch.cat(parts)

    def _freeze(self, epoch: int) -> None:
        frozen = [prefix for prefix, epochs in self.config.frozen_epochs.items() if epoch < epochs]
        if frozen:
            for name, parameter in self.matcher.named_parameters():
                if longest_prefix(name, frozen) is not None:
                    parameter.grad = None

    def _end_of_epoch(self) -> None:
        """Go to the next epoch; evaluate where it is due, and keep the best."""
        self.log.read()
        done = self.position.epoch + 1
        self._tell_collapse(done)
        self.position = replace(self.position, epoch=done, step=0)
        if done % self.config.evaluate_epochs and done < self.config.epochs:
            return
        self.fabric.barrier()
        averaged = nullcontext() if self.average is None else self.average.in_place()
        with averaged, uncompiled(self.config.compile):
            figures = validate(self.matcher, self.splits.validations, self.held_validation)
        self.figures = figures
        better = figures["rsum"] > self.position.best_rsum
        if better:
            self.position = replace(self.position, best_rsum=figures["rsum"], best_epoch=done - 1)
        self.log.evaluation(self.position.total, done - 1, figures)
        if self.fabric.is_global_zero:
            mark = " (best)" if better else ""
            print(f"epoch {done}/{self.config.epochs}: validation rsum {figures['rsum']:.1f}{mark}", file=sys.stderr)
        self._save(better)

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
        """Whether any process was asked to stop."""
        if self.fabric.world_size > 1:
            asked = self.fabric.all_reduce(torch.tensor(float(self.stop.asked)), reduce_op="sum")
            self.stop.asked = bool(asked > 0)
        return self.stop.asked


def outcome_tree(outcome: Outcome) -> dict[str, Any]:
    """An outcome as plain data."""
    return {
        "run": str(outcome.run),
        "finished": outcome.finished,
        **asdict(outcome.position),
        "validation": outcome.figures,
    }
