import json
from pathlib import Path

import pytest

from diptych.cli.main import run
from tests.training.test_ablation import SMALL


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    (tmp_path / "small.toml").write_text(SMALL)
    return tmp_path / "small.toml"


def test_train_evaluate_and_compare(recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [str(tmp_path / "plain"), str(tmp_path / "all")]
    assert run(["train", str(recipe), "--out", runs[0], "--json"]) == 0
    outcome = json.loads(capsys.readouterr().out)
    assert outcome["finished"]
    assert outcome["best_rsum"] > 0
    assert run(["train", str(recipe), "--variant", "all-negatives", "--out", runs[1], "training.seed=1"]) == 0
    assert "done; best validation rsum" in capsys.readouterr().out
    for folder in runs:
        assert run(["evaluate", folder, "--json"]) == 0
        figures = json.loads(capsys.readouterr().out)
        assert figures["split"] == "test"
        assert figures["images"] == 10
        assert "rsum" in figures
    assert run(["evaluate-near-misses", runs[0], "--count", "6", "--json"]) == 0
    assert 0 <= json.loads(capsys.readouterr().out)["near-miss/all"] <= 100
    assert run(["evaluate-reranked", runs[0], "--rerank", runs[1], "--depth", "0.5", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["seconds/second"] > 0
    assert run(["compare", *runs, "--format", "json"]) == 0
    assert "rsum" in capsys.readouterr().out


def test_ablate_prints_and_saves_one_table(recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "ablation"
    arguments = ["ablate", str(recipe), "--out", str(out), "--seeds", "2", "--variants", "main"]
    assert run(arguments) == 0
    shown = capsys.readouterr().out
    assert "±" in shown
    assert "main" in (out / "table.md").read_text()
    assert json.loads((out / "table.json").read_text())["rows"][0]["seeds"] == 2


def test_a_run_begins_with_the_weights_of_another_and_goes_on_for_more_epochs(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    still = ["training.epochs=1", "training.optimiser.lr=0.0"]
    assert run(["train", str(recipe), "--out", first, "training.epochs=1"]) == 0
    assert run(["train", str(recipe), "--out", second, "--init-from", first, *still, "training.seed=3", "--json"]) == 0
    trained = json.loads((tmp_path / "first" / "last" / "position.json").read_text())["best_rsum"]
    assert f'"best_rsum": {trained}' in capsys.readouterr().out
    assert run(["train", str(recipe), "--out", first, "training.epochs=2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["epoch"] == 2
    assert run(["train", str(recipe), "--out", first, "training.epochs=1"]) == 1
    assert "training.epochs may grow, and 1 are fewer" in capsys.readouterr().err


def test_a_wrong_override_is_said(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", str(recipe), "training.epoch=1"]) == 1
    assert "'epochs'" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["train", "ablate"])
def test_a_device_that_is_not_there_is_said(
    command: str, recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert run([command, str(recipe), "--out", str(out), "--device", "tpu"]) == 1
    assert "device: 'tpu' cannot be used on this machine; expected" in capsys.readouterr().err
    assert not out.exists()
