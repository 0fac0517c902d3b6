import json
from pathlib import Path

import numpy as np
import pytest

from diptych.cli.main import run
from diptych.evaluation.evaluate import evaluate_scores


@pytest.fixture
def runs(tmp_path: Path) -> list[str]:
    owners = np.arange(60) // 5
    for name, lift in (("base", 1.0), ("better", 3.0)):
        scores = np.random.default_rng(0).normal(size=(12, 60))
        scores[owners, np.arange(60)] += lift
        evaluate_scores(scores, owners, "flickr30k").described(split="test").save(tmp_path / name / "evaluations")
    return [str(tmp_path / "base"), str(tmp_path / "better")]


def test_a_table_with_differences(runs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", *runs, "--draws", "100", "--permutations", "199"]) == 0
    shown = capsys.readouterr().out
    assert "better − base" in shown
    line = next(line for line in shown.splitlines() if line.startswith("flickr30k/rsum"))
    assert line.split()[-1] == "0.0050"


@pytest.mark.parametrize("arguments", [["--json"], ["--format", "json"]])
def test_json(runs: list[str], arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", *runs, "--draws", "20", "--permutations", "20", *arguments]) == 0
    found = json.loads(capsys.readouterr().out)
    gap = found["differences"]["flickr30k/rsum"]["better"]
    assert gap["low"] <= gap["value"] <= gap["high"]
    assert found["runs"] == ["base", "better"]


@pytest.mark.parametrize(("format", "start"), [("markdown", "**flickr30k**"), ("latex", "% flickr30k")])
def test_formats(runs: list[str], format: str, start: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", *runs, "--draws", "20", "--permutations", "20", "--format", format]) == 0
    assert capsys.readouterr().out.startswith(start)


def test_what_is_wrong_is_said(runs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", runs[0]]) == 1
    assert "at least two runs" in capsys.readouterr().err
    assert run(["compare", runs[0], "nowhere"]) == 1
    assert "nowhere: no such run" in capsys.readouterr().err


def test_seeds_are_pooled_from_a_folder_or_a_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    owners = np.arange(60) // 5
    for name, lift in (("base", 1.0), ("better", 3.0)):
        for seed in range(3):
            scores = np.random.default_rng(seed).normal(size=(12, 60))
            scores[owners, np.arange(60)] += lift
            folder = tmp_path / name / f"seed-{seed}" / "evaluations"
            evaluate_scores(scores, owners, "flickr30k").described(split="test").save(folder)
    few = ["--draws", "100", "--permutations", "199"]
    assert run(["compare", str(tmp_path / "base"), str(tmp_path / "better"), *few]) == 0
    shown = capsys.readouterr().out
    assert "better − base" in shown
    assert "base: mean of 3 seeds, flickr30k/rsum ± " in shown
    assert "p is pooled over seeds" in shown
    assert max(len(line) for line in shown.splitlines()[-4:]) <= 120
    listed = ",".join(str(tmp_path / "better" / f"seed-{seed}") for seed in (0, 2))
    assert run(["compare", str(tmp_path / "base" / "seed-0"), listed, *few, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["seeds"] == [1, 2]
    assert found["runs"] == ["base/seed-0", "better/seed-0 and 1 more"]
