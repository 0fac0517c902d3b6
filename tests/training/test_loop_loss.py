"""The training loop does with the loss and its terms what the recipe says.

Every step of these runs holds the whole training split, so that its loss can be computed anew, by the slow loops of the
losses' and terms' own tests, from a matcher that was built as the run builds its own.
"""

import json
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from diptych.common.errors import DiptychError
from diptych.encoders.images import FeatureConfig
from diptych.encoders.texts import GRUConfig
from diptych.matchers.base import Matcher
from diptych.matchers.camp import CAMPConfig
from diptych.matchers.dive import DivEConfig, DivEKept
from diptych.matchers.kept import Kept
from diptych.training import loop
from diptych.training.batches import Augmentation, RunDataset
from diptych.training.loop import Device, Outcome, train
from diptych.training.losses.bce import BCEConfig
from diptych.training.losses.catalog import LossConfig
from diptych.training.losses.hinge import HingeConfig
from diptych.training.losses.info_nce import InfoNCEConfig
from diptych.training.losses.sigmoid import SigmoidConfig
from diptych.training.optimisation import OptimiserConfig
from diptych.training.recipe import Recipe
from diptych.training.start import build_for
from tests.training import toy
from tests.training.losses import test_bce, test_hinge, test_info_nce
from tests.training.losses.batches import reduce
from tests.training.terms.test_diversity import slow_diversity
from tests.training.terms.test_mmd import slow_mmd

IMAGE, TEXT = FeatureConfig(feature_dim=8), GRUConfig(word_dim=6)
CAMP = CAMPConfig(dim=8, image=IMAGE, text=TEXT)  # its scores are the sigmoids of its logits
DIVE = DivEConfig(
    dim=8, image=IMAGE, text=TEXT, slots=3, iterations=2, heads=2, head_dim=4, feed_forward=2, dropout=0.0
)
STILL = OptimiserConfig(kind="sgd", lr=0.0)
NEAR = {"abs": 1e-4, "rel": 1e-4}


def recipe(loss: LossConfig, model: Any = None, optimiser: OptimiserConfig = STILL, **training: object) -> Recipe:
    """One step an epoch: every picture with all its captions."""
    return toy.recipe(loss, model, optimiser=optimiser, sampler="all-captions", batch_size=1000, **training)


def go(recipe: Recipe, run: Path) -> Outcome:
    return train(recipe, run, Device("cpu"), toy.splits())


def losses(run: Path) -> list[float]:
    """The loss of each step, as the run wrote it down."""
    entries = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [entry["loss"] for entry in entries if "loss" in entry]


def learned(run: Path) -> dict[str, Tensor]:
    """What the loss itself has learned, at the last checkpoint."""
    state: dict[str, Tensor] = torch.load(run / "last" / "trainer.pt", weights_only=True)["loss"]
    return state


@dataclass(frozen=True)
class Beginning:
    """A matcher as it is before its first step, and what it keeps of the training split."""

    matcher: Matcher
    images: Kept
    texts: Kept
    owners: Tensor
    positive: Tensor


def beginning(recipe: Recipe) -> Beginning:
    data = toy.splits().train
    torch.manual_seed(recipe.training.seed)
    matcher = build_for(recipe, toy.splits()).train()
    pairs = [(i, c) for i, item in enumerate(data.items) for c in range(len(item.sentences))]
    batch = RunDataset(data, matcher.tokenizer, None, Augmentation(), lambda epoch: [pairs], 0)[0, 0]
    images, texts = matcher(batch.images, batch.texts)
    positive = torch.arange(len(images)).unsqueeze(1) == batch.owners
    return Beginning(matcher, images, texts, batch.owners, positive)


def interrupt_after(step: int, recipe: Recipe, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is asked to stop, and does, with a checkpoint."""
    whole = loop.Trainer._step

    def interrupted(self: loop.Trainer, *arguments: object) -> float:
        value = whole(self, *arguments)  # type: ignore[arg-type]
        if self.position.total == step - 1:
            os.kill(os.getpid(), signal.SIGINT)
        return value

    with monkeypatch.context() as patch:
        patch.setattr(loop.Trainer, "_step", interrupted)
        assert not go(recipe, run).finished


@pytest.mark.parametrize("rows", [None, 3])
def test_a_binary_loss_sees_the_logits_and_not_the_scores(rows: int | None, tmp_path: Path) -> None:
    config = BCEConfig()
    told = recipe(config, CAMP, epochs=1, score_rows=rows)
    go(told, tmp_path / "run")
    b = beginning(told)
    logits, scores = b.matcher.logits(b.images, b.texts), b.matcher.score(b.images, b.texts)
    right = float(reduce(test_bce.slow(config, logits, b.owners, b.positive), "mean").detach())
    wrong = float(reduce(test_bce.slow(config, scores, b.owners, b.positive), "mean").detach())
    assert abs(right - wrong) > 0.01
    assert losses(tmp_path / "run") == pytest.approx([right], **NEAR)


@pytest.mark.parametrize("rows", [None, 3])
def test_a_ranking_loss_sees_the_scores_and_not_the_logits(rows: int | None, tmp_path: Path) -> None:
    config = HingeConfig(negatives="all", reduction="sum")
    told = recipe(config, CAMP, epochs=1, score_rows=rows)
    go(told, tmp_path / "run")
    b = beginning(told)
    logits, scores = b.matcher.logits(b.images, b.texts), b.matcher.score(b.images, b.texts)
    right = float(reduce(test_hinge.slow(config, scores, b.owners, b.positive), "sum").detach())
    wrong = float(reduce(test_hinge.slow(config, logits, b.owners, b.positive), "sum").detach())
    assert abs(right - wrong) > 0.01
    assert losses(tmp_path / "run") == pytest.approx([right], **NEAR)


def hinge_of(b: Beginning, config: HingeConfig) -> float:
    scores = b.matcher.score(b.images, b.texts)
    return float(reduce(test_hinge.slow(config, scores, b.owners, b.positive), config.reduction).detach())


def test_the_loss_sees_the_epoch(tmp_path: Path) -> None:
    told = recipe(HingeConfig(all_negatives_epochs=2), epochs=4)
    go(told, tmp_path / "run")
    b = beginning(told)
    everything, hardest = hinge_of(b, HingeConfig(negatives="all")), hinge_of(b, HingeConfig())
    assert everything > hardest + 0.1
    assert losses(tmp_path / "run") == pytest.approx([everything, everything, hardest, hardest], **NEAR)


def test_a_resumed_run_goes_on_in_its_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = recipe(HingeConfig(all_negatives_epochs=2), epochs=3)
    interrupt_after(1, told, tmp_path / "run", monkeypatch)
    assert len(losses(tmp_path / "run")) == 1
    assert go(told, tmp_path / "run").finished
    b = beginning(told)
    everything, hardest = hinge_of(b, HingeConfig(negatives="all")), hinge_of(b, HingeConfig())
    assert losses(tmp_path / "run") == pytest.approx([everything, everything, hardest], **NEAR)


def test_terms_are_weighted_and_added_to_the_loss(tmp_path: Path) -> None:
    told = recipe(HingeConfig(), DIVE, epochs=1, terms={"mmd": 2.0, "diversity": 0.5})
    go(told, tmp_path / "run")
    b = beginning(told)
    assert isinstance(b.images, DivEKept)
    assert isinstance(b.texts, DivEKept)
    mmd, diversity = (float(slow(b.images, b.texts).detach()) for slow in (slow_mmd, slow_diversity))
    assert min(mmd, diversity) > 0.01
    assert losses(tmp_path / "run") == pytest.approx([hinge_of(b, HingeConfig()) + 2 * mmd + 0.5 * diversity], **NEAR)


def test_any_matcher_trains_with_mmd(tmp_path: Path) -> None:
    told = recipe(HingeConfig(), epochs=1, terms={"mmd": 3.0})
    go(told, tmp_path / "run")
    b = beginning(told)
    mmd = float(slow_mmd(b.images, b.texts).detach())
    assert mmd > 0.01
    assert losses(tmp_path / "run") == pytest.approx([hinge_of(b, HingeConfig()) + 3 * mmd], **NEAR)


def test_a_term_that_the_matcher_has_nothing_for_names_both(tmp_path: Path) -> None:
    told = recipe(HingeConfig(), epochs=1, terms={"diversity": 0.1})
    with pytest.raises(DiptychError, match=r"training\.terms: 'diversity' needs 'slots', which 'vse' does not keep"):
        go(told, tmp_path / "run")


def test_a_step_descends_the_loss_with_its_terms_in_the_matcher_and_in_the_loss_itself(tmp_path: Path) -> None:
    rate, temperature = 0.1, torch.tensor(0.5, requires_grad=True)
    optimiser = OptimiserConfig(kind="sgd", lr=rate)
    told = recipe(InfoNCEConfig(temperature=0.5), DIVE, optimiser, epochs=1, terms={"mmd": 2.0, "diversity": 5.0})
    go(told, tmp_path / "run")
    b = beginning(told)
    assert isinstance(b.images, DivEKept)
    assert isinstance(b.texts, DivEKept)
    config = InfoNCEConfig(temperature=temperature)  # type: ignore[arg-type]
    costs = test_info_nce.slow(config, b.matcher.score(b.images, b.texts), b.owners, b.positive)
    total = reduce(costs, "mean") + 2 * slow_mmd(b.images, b.texts) + 5 * slow_diversity(b.images, b.texts)
    total.backward()
    after = load_file(tmp_path / "run" / "last" / "model.safetensors")
    for name, parameter in b.matcher.named_parameters():
        assert parameter.grad is not None, name
        moved = (parameter.detach() - after[name]) / rate
        torch.testing.assert_close(moved, parameter.grad, atol=1e-5, rtol=1e-3, msg=lambda m, n=name: f"{n}: {m}")
    # The temperature is learned as its logarithm: d/d(log scale) = -temperature d/d(temperature).
    assert temperature.grad is not None
    slope = -0.5 * float(temperature.grad)
    assert abs(slope) > 0.01
    start = -torch.tensor(0.5).log()
    assert float(learned(tmp_path / "run")["log_scale"]) == pytest.approx(float(start) - rate * slope, abs=1e-5)


@pytest.mark.parametrize("loss", [InfoNCEConfig(), SigmoidConfig(), BCEConfig(learned_scale=True)], ids=str)
def test_what_a_loss_learns_is_trained_kept_and_taken_up_again(
    loss: LossConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moving = OptimiserConfig(lr=1e-2)
    go(recipe(loss, optimiser=STILL, epochs=1), tmp_path / "still")
    go(recipe(loss, optimiser=moving, epochs=1), tmp_path / "one")
    go(recipe(loss, optimiser=moving, epochs=4), tmp_path / "unbroken")
    start, one, end = (learned(tmp_path / name) for name in ("still", "one", "unbroken"))
    assert start
    for name, value in start.items():
        assert abs(float(one[name] - value)) == pytest.approx(1e-2, rel=0.01)  # Adam's first step is the rate itself
        assert not torch.equal(end[name], one[name])
    interrupt_after(2, recipe(loss, optimiser=moving, epochs=4), tmp_path / "broken", monkeypatch)
    assert go(recipe(loss, optimiser=moving, epochs=4), tmp_path / "broken").finished
    for name, value in learned(tmp_path / "broken").items():
        assert torch.equal(value, end[name])
    assert losses(tmp_path / "broken") == losses(tmp_path / "unbroken")
