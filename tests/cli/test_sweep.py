import json
from pathlib import Path

import pytest

from diptych.cli.main import run

pytest.importorskip("optuna", reason="Optuna, diptych[sweep], is not installed")

RECIPE = """
[model]
kind = "vse"
dim = 8
image = {kind = "features", feature_dim = 438}
text = {kind = "gru", word_dim = 4}
[data]
kind = "scenes"
train = 16
validation = 6
test = 0
[loss]
kind = "hinge"
[training]
epochs = 2
batch_size = 20
"""


def test_a_table_with_the_best_first_and_more_trials_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tiny.toml").write_text(RECIPE)
    command = ["sweep", "tiny.toml", "training.epochs=1", "--device", "cpu", "--over", "loss.margin=0.1..0.3"]
    assert run([*command, "--trials", "2"]) == 0
    told = capsys.readouterr()
    lines = told.out.splitlines()
    assert lines[0] == "tiny: 2 trials"
    assert lines[1].split() == ["trial", "loss.margin", "rsum", "epoch", "state"]
    rsums = [float(line.split()[2]) for line in lines[3:5]]
    assert rsums == sorted(rsums, reverse=True)
    assert "trial-000 (1 of 2): loss.margin=0." in told.err
    assert "runs/tiny-sweep: done; the best is runs/tiny-sweep/trial-00" in told.err
    assert run([*command, "--trials", "3", "--json"]) == 0
    told = capsys.readouterr()
    assert "trial-002 (3 of 3)" in told.err
    assert "trial-000 (" not in told.err
    rows = json.loads(told.out)["rows"]
    assert {row["run"] for row in rows} == {f"runs/tiny-sweep/trial-00{i}" for i in range(3)}
    assert json.loads(Path("runs/tiny-sweep/table.json").read_text())["rows"] == rows
    assert Path("runs/tiny-sweep/table.md").read_text().startswith("**tiny: 3 trials**")


def test_what_is_wrong_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tiny.toml").write_text(RECIPE)
    command = ["sweep", str(tmp_path / "tiny.toml"), "--out", str(tmp_path / "out")]
    assert run(command) == 1
    assert "expected at least one --over KEY=LOW..HIGH" in capsys.readouterr().err
    assert run([*command, "--over", "loss.margn=0.1..0.3"]) == 1
    assert "unknown key 'margn'; did you mean 'margin'?" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
