import json
from pathlib import Path

import pytest

from diptych.cli.main import run
from diptych.data.scenes import near_miss_set
from diptych.evaluation.near_misses import near_miss_figures
from diptych.matchers.base import Matcher
from tests.evaluation import tiny
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


def test_the_table_fits_a_hundred_columns_whatever_runs_are_called(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["short", "a-run-whose-name-says-all-that-was-changed-in-its-recipe"]
    folders = [str(runs.scenes_run(tmp_path / name, "vse++")) for name in names]
    assert run(["evaluate-near-misses", *folders, "--count", "12"]) == 0
    title, *table, first, second = capsys.readouterr().out.splitlines()
    assert max(map(len, [title, *table])) <= 100
    assert [line.split()[0] for line in table[-2:]] == ["1", "2"]
    assert [first, second] == [f"1: {names[0]}", f"2: {names[1]}"]
    assert run(["evaluate-near-misses", folders[0], "--count", "12"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("short ")


def test_other_runs_have_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["evaluate-near-misses", str(tmp_path)]) == 1
    assert "this is no run on drawn scenes" in capsys.readouterr().err


def test_real_captions_and_statements(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(tmp_path / "model")
    tiny.matcher("vse++").save_pretrained(model)
    data = str(tiny.precomp(tmp_path / "data"))
    statements = tmp_path / "statements.jsonl"
    told = {"id": 2, "statement": "the dog left of the cat", "true": True, "relation": "left of"}
    statements.write_text(json.dumps(told) + "\n" + json.dumps({**told, "true": False}) + "\n")
    asked = ["evaluate-near-misses", model, "--data", data, "--statements", str(statements)]
    assert run([*asked, "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert 0 <= figures["foil/all/low"] <= figures["foil/all"] <= figures["foil/all/high"] <= 100
    assert figures["statement/all/auc"] == 50.0
    assert run(asked) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    assert [line.split()[:2] for line in lines if line.startswith("method")] == [
        ["method", "changed"],
        ["method", "relation"],
    ]
    assert run([*asked, "--format", "markdown"]) == 0
    assert "| model | projective | 2 |" in capsys.readouterr().out
    assert run([*asked, "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert rows == [{"method": "model", **figures}]


def test_some_of_the_pictures_are_the_same_ones_each_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(tmp_path / "model")
    tiny.matcher("vse++").save_pretrained(model)
    data = str(tiny.precomp(tmp_path / "data", count=30))
    out = []
    for _ in range(2):
        assert run(["evaluate-near-misses", model, "--data", data, "--pictures", "8", "--json"]) == 0
        out.append(json.loads(capsys.readouterr().out))
    assert out[0] == out[1]
    assert out[0]["foil/all/pictures"] <= 8


def test_options_of_real_pictures_need_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["evaluate-near-misses", str(tmp_path), "--pictures", "3"]) == 1
    assert "belong to --data" in capsys.readouterr().err
