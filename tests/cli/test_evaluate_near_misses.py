import json
from pathlib import Path

import pytest

from diptych.cli.main import run
from diptych.data.scenes import near_miss_set
from diptych.evaluation.near_misses import near_miss_figures
from diptych.matchers.base import Matcher
from tests.report import runs


def test_figures_of_pairs_that_no_recipe_trains_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = runs.scenes_run(tmp_path / "run", "vse++")
    assert run(["evaluate-near-misses", str(folder), "--count", "12", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    matcher = Matcher.from_pretrained(folder / "best")
    assert told == near_miss_figures(matcher, near_miss_set(12, seed=runs.SCENES.seed + 1))


def test_a_table_with_a_run_a_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = [str(runs.scenes_run(tmp_path / name, name)) for name in ("vse++", "scan")]
    assert run(["evaluate-near-misses", *folders, "--count", "12", "--format", "markdown"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    assert lines[0].startswith("| method | all | sentence | picture | ")
    assert [line.split(" | ")[0] for line in lines[-2:]] == ["| vse++", "| scan"]
    assert run(["evaluate-near-misses", *folders, "--count", "12", "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)) == ["vse++", "scan"]


def test_other_runs_have_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["evaluate-near-misses", str(tmp_path)]) == 1
    assert "this is no run on drawn scenes" in capsys.readouterr().err
