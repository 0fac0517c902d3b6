"""A run whose scores are all the same says so, and one that learns does not."""

from pathlib import Path

import pytest
import torch

from diptych.matchers.base import Matcher
from diptych.matchers.vse import VSE
from diptych.training.collapse import CollapseWatch
from diptych.training.loop import Device, train
from diptych.training.losses.bce import BCEConfig
from diptych.training.losses.catalog import LossConfig
from diptych.training.losses.hinge import HingeConfig
from diptych.training.losses.info_nce import InfoNCEConfig
from diptych.training.optimisation import OptimiserConfig
from tests.training import toy

STILL = OptimiserConfig(kind="sgd", lr=0.0)
WORDS = "as it is where all scores are the same"


def told(loss: LossConfig, run: Path, capsys: pytest.CaptureFixture[str], **training: object) -> str:
    capsys.readouterr()
    train(toy.recipe(loss, **{"epochs": 3, "optimiser": STILL, **training}), run, Device("cpu"), toy.splits())
    return capsys.readouterr().err


@pytest.fixture
def collapsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every pair scores the same."""

    def same(self: Matcher, images: object, texts: object) -> torch.Tensor:
        scores = score(self, images, texts)  # type: ignore[arg-type]
        return 0 * scores + 0.25

    score = VSE.score
    monkeypatch.setattr(VSE, "score", same)


@pytest.mark.usefixtures("collapsed")
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_a_collapsed_run_says_so_once(reduction: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loss = HingeConfig(margin=0.1, reduction=reduction)  # type: ignore[arg-type]
    err = told(loss, tmp_path / "run", capsys)
    assert err.count(WORDS) == 1
    assert "epoch 1: the loss stays at " + ("0.2" if reduction == "mean" else "1.6") + ", " in err
    assert "loss.all_negatives_epochs" in err


def test_cross_entropy_collapses_to_even_chances(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    score = VSE.score
    monkeypatch.setattr(VSE, "score", lambda self, images, texts: 0 * score(self, images, texts))
    assert "epoch 1: the loss stays at 2.77259, " in told(BCEConfig(), tmp_path / "run", capsys)
    assert "epoch 3: the loss stays" in told(BCEConfig(all_negatives_epochs=2), tmp_path / "late", capsys)
    assert WORDS not in told(BCEConfig(negatives="mean"), tmp_path / "mean", capsys)


@pytest.mark.usefixtures("collapsed")
def test_only_epochs_of_the_hardest_negatives_are_looked_at(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "epoch 3: the loss stays" in told(HingeConfig(all_negatives_epochs=2), tmp_path / "late", capsys)
    assert WORDS not in told(HingeConfig(all_negatives_epochs=3), tmp_path / "never", capsys)
    assert WORDS not in told(HingeConfig(negatives="all"), tmp_path / "all", capsys)
    assert WORDS not in told(HingeConfig(margin=0.0), tmp_path / "margin", capsys)
    assert WORDS not in told(InfoNCEConfig(), tmp_path / "infonce", capsys)


def test_a_run_that_learns_is_silent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert WORDS not in told(HingeConfig(), tmp_path / "run", capsys, optimiser=OptimiserConfig(lr=5e-3))


@pytest.mark.parametrize(("losses", "collapsed"), [([0.4, 0.401], True), ([0.4, 0.5], False), ([], False)])
def test_all_steps_of_an_epoch_count(losses: list[float], collapsed: bool) -> None:
    watch = CollapseWatch()
    for loss in losses:
        watch.step(torch.tensor(loss), 0.4)
    watch.step(torch.tensor(9.0), None)
    assert watch.epoch() is collapsed
    assert not watch.epoch()
