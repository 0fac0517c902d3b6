import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from diptych.common.errors import DiptychError
from diptych.training import loop, sweep
from diptych.training.loop import Device, train
from diptych.training.recipe import load_run_recipe
from diptych.training.sweep import SweepPlan, SweepResult, run_sweep, sweep_table
from diptych.training.sweep_axes import parse_axis
from tests.training import toy
from tests.training.test_loop import metrics, weights

pytest.importorskip("optuna", reason="Optuna, diptych[sweep], is not installed")

TEXT = """
[model]
kind = "vse"
dim = 16
image = {kind = "features", feature_dim = 8}
text = {kind = "gru", word_dim = 6}
[data]
kind = "files"
path = "nowhere"
at_least = 1
[loss]
kind = "hinge"
[training]
epochs = 4
batch_size = 8
"""


@pytest.fixture
def plan(tmp_path: Path) -> SweepPlan:
    (tmp_path / "small.toml").write_text(TEXT)
    axes = (parse_axis("training.optimiser.lr=log:1e-4..1e-2"), parse_axis("loss.margin=0.1,0.2"))
    return SweepPlan(tmp_path / "small.toml", tmp_path / "sweep", axes)


def go(plan: SweepPlan, trials: int) -> SweepResult:
    return run_sweep(plan, trials, Device("cpu"), toy.splits())


def best_of(run: Path) -> float:
    return max(e["validation"]["rsum"] for e in metrics(run) if "validation" in e)  # type: ignore[index]


def test_trials_are_runs_with_their_own_values_and_the_best_comes_first(plan: SweepPlan) -> None:
    result = go(plan, 3)
    assert result.finished
    assert sorted(trial.run.name for trial in result.trials) == ["trial-000", "trial-001", "trial-002"]
    rates = set()
    for trial in result.trials:
        recipe = load_run_recipe(trial.run)
        rates.add(recipe.training.optimiser.lr)
        assert 1e-4 <= recipe.training.optimiser.lr <= 1e-2
        assert trial.values == (f"{recipe.training.optimiser.lr:.4g}", str(recipe.loss.margin))  # type: ignore[union-attr]
        assert trial.rsum == pytest.approx(best_of(trial.run))
    assert len(rates) == 3
    rsums = [trial.rsum for trial in result.trials]
    assert rsums == sorted(rsums, reverse=True)  # type: ignore[type-var]
    table = sweep_table(plan, result)
    assert table.columns == ("trial", "training.optimiser.lr", "loss.margin", "rsum", "epoch", "state")
    assert [row[0] for row in table.rows] == [trial.run.name for trial in result.trials]


def test_a_finished_sweep_is_left_alone_and_goes_on_for_more(plan: SweepPlan) -> None:
    first = go(plan, 2)
    assert go(plan, 2) == first
    more = go(plan, 4)
    assert len(more.trials) == 4
    assert set(first.trials) <= set(more.trials)
    assert len({trial.values for trial in more.trials}) == 4  # a new start draws other values


class Killed(BaseException):
    """As good as a kill: nothing above catches it."""


@pytest.mark.parametrize("how", ["asked", "killed"])
def test_an_interrupted_trial_goes_on_where_it_stopped(
    how: str, plan: SweepPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, taken = loop.Trainer._step, 0

    def interrupted(self: loop.Trainer, *arguments: Any) -> Any:
        nonlocal taken
        taken += 1
        if taken == 16 + 6 and how == "killed":  # the second trial, in its second epoch
            raise Killed
        if taken == 16 + 6:
            os.kill(os.getpid(), signal.SIGINT)
        return step(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(loop.Trainer, "_step", interrupted)
        if how == "killed":
            with pytest.raises(Killed):
                go(plan, 3)
        else:
            assert not go(plan, 3).finished
    before = [e for e in metrics(plan.out / "trial-001") if "validation" in e]
    assert len(before) == 1
    result = go(plan, 3)
    assert result.finished
    assert sorted(trial.run.name for trial in result.trials) == ["trial-000", "trial-001", "trial-002"]
    assert [e for e in metrics(plan.out / "trial-001") if "validation" in e][:1] == before
    recipe = load_run_recipe(plan.out / "trial-001")
    train(recipe, tmp_path / "unbroken", Device("cpu"), toy.splits())
    for name, tensor in weights(tmp_path / "unbroken").items():
        assert torch.equal(weights(plan.out / "trial-001")[name], tensor), name


def test_a_trial_below_the_median_is_stopped(plan: SweepPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    validate = loop.validate

    def worse_and_worse(*arguments: Any) -> dict[str, float]:
        asked.append(0)
        return {**validate(*arguments), "rsum": 1000.0 - len(asked)}

    monkeypatch.setattr(sweep, "STARTUP", 2)
    monkeypatch.setattr(loop, "validate", worse_and_worse)
    result = go(plan, 4)
    states = {trial.run.name: trial.state for trial in result.trials}
    assert states == {"trial-000": "done", "trial-001": "done", "trial-002": "stopped", "trial-003": "stopped"}
    assert [len(metrics(plan.out / f"trial-00{i}")) for i in range(4)] == [20, 20, 10, 10]  # 4 epochs, and 2
    assert "stopped: ended early" in sweep_table(plan, result).notes[1]
    asked.clear()
    unpruned = go(replace(plan, prune=False, out=plan.out.with_name("unpruned")), 4)
    assert [trial.state for trial in unpruned.trials] == ["done"] * 4


def test_a_trial_that_fails_is_told_and_the_others_go_on(plan: SweepPlan) -> None:
    plan = replace(plan, axes=(parse_axis("training.frozen_epochs={image_encoder = 1},{nothing = 1}"),), seed=1)
    result = go(plan, 4)
    states = {trial.state for trial in result.trials}
    assert states == {"done", "failed"}
    failed = next(trial for trial in result.trials if trial.state == "failed")
    assert result.trials[-1].state == "failed"
    assert "nothing" in failed.said
    assert any(failed.said in note for note in sweep_table(plan, result).notes)


def test_a_sweep_in_which_all_fails_gives_up(plan: SweepPlan) -> None:
    axes = (parse_axis("training.frozen_epochs={nobody = 1},{nothing = 1}"),)
    with pytest.raises(DiptychError, match=r"all 3 trials failed, the last with: .*no"):
        go(replace(plan, axes=axes), 9)


def test_what_cannot_be_swept_is_told_before_anything_begins(plan: SweepPlan) -> None:
    for axes, words in [
        ((), "at least one --over"),
        ((parse_axis("training.lr=log:1e-5..1e-3"),), "training: unknown key 'lr'"),
        ((parse_axis("loss.margin=-1..1"),), "margin: expected"),
        ((parse_axis("training.epochs=0..4"),), "epochs: expected at least 1, got 0"),
        ((parse_axis("loss.margin=0.1..0.3"), parse_axis("loss.margin=0.1,0.2")), "loss.margin is given 2 times"),
    ]:
        with pytest.raises(DiptychError, match=words):
            go(replace(plan, axes=axes), 2)
    assert not plan.out.exists()


def test_a_folder_is_one_sweeps(plan: SweepPlan) -> None:
    go(plan, 1)
    with pytest.raises(DiptychError, match="holds a sweep over other values"):
        go(replace(plan, axes=plan.axes[:1]), 1)
    with pytest.raises(DiptychError, match="holds a sweep of another recipe"):
        go(replace(plan, assignments=("training.epochs=3",)), 1)
    assert json.loads((plan.out / "sweep.json").read_text())["init_from"] is None
