import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from diptych.common.errors import DiptychError
from diptych.evaluation.evaluate import evaluate_matcher
from diptych.matchers.base import Matcher
from diptych.training import loop
from diptych.training.batches import epoch_batches
from diptych.training.loop import Device, Outcome, train
from diptych.training.losses.bce import BCEConfig
from diptych.training.losses.catalog import LossConfig
from diptych.training.losses.info_nce import InfoNCEConfig
from diptych.training.losses.sigmoid import SigmoidConfig
from diptych.training.optimisation import OptimiserConfig
from diptych.training.recipe import Recipe
from diptych.training.start import build_for
from tests.training import toy

ROOT = Path(__file__).parent.parent.parent
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}


def go(recipe: Recipe, run: Path) -> Outcome:
    return train(recipe, run, Device("cpu"), toy.splits())


def in_a_process(*arguments: object, launcher: tuple[str, ...] = ()) -> int:
    command = [sys.executable, *launcher, "-m", "tests.training.run_toy", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, check=False).returncode


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "last" / "model.safetensors")


def metrics(run: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("unbroken") / "run"
    assert in_a_process(run) == 0
    return run


@pytest.mark.parametrize("step", [1, 5])
def test_a_run_killed_at_any_step_ends_with_the_weights_of_an_unbroken_one(
    step: int, unbroken: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    assert in_a_process(run, step) == -signal.SIGKILL
    assert in_a_process(run) == 0
    expected, actual = weights(unbroken), weights(run)
    assert expected.keys() == actual.keys()
    for name, tensor in expected.items():
        assert torch.equal(actual[name], tensor), name
    assert metrics(run) == metrics(unbroken)


def test_two_processes_end_with_the_weights_of_one(unbroken: Path, tmp_path: Path) -> None:
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    assert in_a_process(tmp_path / "run", launcher=launcher) == 0
    actual = weights(tmp_path / "run")
    for name, tensor in weights(unbroken).items():
        torch.testing.assert_close(actual[name], tensor, atol=1e-4, rtol=1e-3, msg=name)


@pytest.mark.parametrize("loss", [None, BCEConfig(learned_scale=True), InfoNCEConfig(), SigmoidConfig()], ids=str)
def test_training_learns(loss: LossConfig | None, tmp_path: Path) -> None:
    recipe = toy.recipe(loss, epochs=12, optimiser=OptimiserConfig(lr=1e-2))
    torch.manual_seed(0)
    before = evaluate_matcher(build_for(recipe, toy.splits()), toy.splits().validation).figures["rsum"]
    outcome = go(recipe, tmp_path / "run")
    assert outcome.finished
    assert outcome.position.best_rsum > before + 30
    again = evaluate_matcher(Matcher.from_pretrained(tmp_path / "run" / "best"), toy.splits().validation)
    assert again.figures["rsum"] == pytest.approx(outcome.position.best_rsum)


def test_a_run_folder_has_what_people_look_for(unbroken: Path) -> None:
    assert {p.name for p in unbroken.iterdir()} >= {"recipe.json", "metrics.jsonl", "best", "last", "checkpoints"}
    assert {p.name for p in (unbroken / "best").iterdir()} >= {"config.json", "model.safetensors", "README.md"}
    assert len(list((unbroken / "checkpoints").iterdir())) <= 2
    card = (unbroken / "last" / "README.md").read_text()
    assert "rsum" in card
    assert "library_name: diptych" in card


def test_a_finished_run_is_left_as_it_is(unbroken: Path) -> None:
    before = metrics(unbroken)
    assert in_a_process(unbroken) == 0
    assert metrics(unbroken) == before


def test_interrupting_saves_a_checkpoint_and_the_next_call_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = loop.Trainer._step

    def interrupted(self: loop.Trainer, *arguments: object) -> torch.Tensor:
        value = step(self, *arguments)  # type: ignore[arg-type]
        if self.position.total == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return value

    with monkeypatch.context() as patch:
        patch.setattr(loop.Trainer, "_step", interrupted)
        outcome = go(toy.recipe(), tmp_path / "run")
    assert not outcome.finished
    assert outcome.position.total == 3
    assert go(toy.recipe(), tmp_path / "run").finished


def test_a_loss_that_is_not_a_number_names_the_step_and_the_checkpoint(tmp_path: Path) -> None:
    data = toy.splits()
    features = data.train.features
    assert isinstance(features, toy.ToyFeatures)
    third = epoch_batches(data.train, "captions", 8, 0, 0)[2]
    features.rows[third[0][0]][:] = 3e38  # finite, and too large for a product
    with pytest.raises(DiptychError, match=r"loss is (nan|inf) at step \d+; the last good checkpoint is .*step-"):
        train(toy.recipe(InfoNCEConfig(), checkpoint_steps=1), tmp_path / "run", Device("cpu"), data)


def test_a_folder_with_another_recipe_is_refused(tmp_path: Path) -> None:
    go(toy.recipe(epochs=1), tmp_path / "run")
    with pytest.raises(DiptychError, match=r"training\.batch_size differs"):
        go(toy.recipe(epochs=1, batch_size=4), tmp_path / "run")


def test_frozen_parts_stay_and_then_train(tmp_path: Path) -> None:
    recipe = toy.recipe(epochs=1, frozen_epochs={"text_encoder.embed": 1})
    torch.manual_seed(0)
    start = build_for(recipe, toy.splits()).state_dict()
    go(recipe, tmp_path / "frozen")
    after = weights(tmp_path / "frozen")
    assert torch.equal(after["text_encoder.embed.weight"], start["text_encoder.embed.weight"])
    assert not torch.equal(after["image_encoder.fc.weight"], start["image_encoder.fc.weight"])
    go(replace(recipe, training=replace(recipe.training, epochs=2)), tmp_path / "trained")
    assert not torch.equal(
        weights(tmp_path / "trained")["text_encoder.embed.weight"], start["text_encoder.embed.weight"]
    )


def test_early_stopping_waits_for_its_patience(tmp_path: Path) -> None:
    recipe = toy.recipe(epochs=50, patience=2, optimiser=OptimiserConfig(lr=0.0))
    outcome = go(recipe, tmp_path / "run")
    assert outcome.finished
    assert outcome.position.epoch == 3
    assert outcome.position.best_epoch == 0


def test_patience_counts_evaluated_epochs_only(tmp_path: Path) -> None:
    recipe = toy.recipe(epochs=50, patience=1, evaluate_epochs=3, optimiser=OptimiserConfig(lr=0.0))
    outcome = go(recipe, tmp_path / "run")
    assert outcome.position.epoch == 6
    assert outcome.position.best_epoch == 2


def test_scoring_in_rows_gives_the_same_run(tmp_path: Path) -> None:
    go(toy.recipe(epochs=1), tmp_path / "whole")
    go(toy.recipe(epochs=1, score_rows=3), tmp_path / "rows")
    for name, tensor in weights(tmp_path / "whole").items():
        torch.testing.assert_close(weights(tmp_path / "rows")[name], tensor, atol=1e-5, rtol=1e-4)


def test_tensorboard_when_asked(tmp_path: Path) -> None:
    go(toy.recipe(epochs=1, tensorboard=True), tmp_path / "run")
    assert list((tmp_path / "run" / "tensorboard").glob("events.*"))


def test_of_several_sets_the_mean_chooses_and_each_is_told(tmp_path: Path) -> None:
    whole = toy.collection()
    sets = (
        replace(whole, name="one", items=whole.items[:9]),
        replace(whole, name="two", items=whole.items[9:]),
    )
    outcome = train(toy.recipe(), tmp_path / "run", Device("cpu"), replace(toy.splits(), sets=sets))
    told = [entry["validation"] for entry in metrics(tmp_path / "run") if "validation" in entry]
    assert len(told) == 2
    for figures in told:
        assert isinstance(figures, dict)
        assert figures["rsum"] == pytest.approx((figures["one/rsum"] + figures["two/rsum"]) / 2)
    assert outcome.position.best_rsum == max(figures["rsum"] for figures in told)  # type: ignore[index]
    card = (tmp_path / "run" / "last" / "README.md").read_text()
    assert "\n| one | " in card
    assert "\n| mean | " in card


def test_a_run_from_before_a_key_was_added_goes_on(tmp_path: Path) -> None:
    go(toy.recipe(epochs=1), tmp_path / "run")
    path = tmp_path / "run" / "recipe.json"
    tree = json.loads(path.read_text())
    del tree["training"]["tensorboard"]
    path.write_text(json.dumps(tree))
    assert go(toy.recipe(epochs=1), tmp_path / "run").finished


def test_several_processes_cannot_share_the_one_gpu_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(DiptychError, match="device: 'cuda:1' is one device"):
        train(toy.recipe(), tmp_path / "run", Device("cuda:1", 2), toy.splits())
