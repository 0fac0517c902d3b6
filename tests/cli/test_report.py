import json
from pathlib import Path

import pytest

from diptych.cli.main import run
from diptych.report import report as report_module
from diptych.training.data import FilesConfig
from tests.evaluation import tiny
from tests.matchers.cases import CASES
from tests.report import runs


@pytest.fixture(autouse=True)
def few_near_misses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_module, "PAIRS", 6)


def test_a_run_s_own_data_into_its_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = runs.scenes_run(tmp_path / "run", "vse++")
    assert run(["report", str(folder), "--split", "val"]) == 0
    assert capsys.readouterr().out.strip() == str(folder / "report.html")
    assert "4 pictures of the val split" in (folder / "report.html").read_text()
    assert not list(folder.glob(".*part"))


def test_other_data_another_file_and_one_object(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tiny.precomp(tmp_path / "tiny_precomp")
    told = runs.recipe(CASES["camp"], FilesConfig(path=str(tmp_path / "gone")))
    folder = runs.write_run(tmp_path / "run", told, tiny.WORDS)
    out = tmp_path / "deep" / "page.html"
    assert run(["report", str(folder), "--data", str(data), "--out", str(out), "--pictures", "8", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["report"] == str(out)
    assert found["bytes"] == out.stat().st_size
    assert found["sections"] == ["run", "training", "recall", "examples", "failures", "gates", "embedding"]
    assert (found["pictures"], found["drawn_from"], found["notes"]) == (8, 9, [])
    assert 0 <= found["figures"]["rsum"] <= 600


def test_what_is_left_out_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = runs.recipe(CASES["vse++"], FilesConfig(path=str(tmp_path / "gone")))
    folder = runs.write_run(tmp_path / "run", told, tiny.WORDS)
    assert run(["report", str(folder)]) == 0
    assert "note: Left out: all that needs the data" in capsys.readouterr().err
    assert (folder / "report.html").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gone"], "gone: no such run"),
        (["."], "without recipe.json"),
        (["run", "--out", "x.pdf"], "expected a name that ends in .html"),
        (["run", "--split", "tset"], "did you mean 'test'"),
        (["run", "--data", "gone.json"], "gone.json: no such file"),
        (["run", "--images", "x"], "belong to --data"),
    ],
)
def test_mistakes_are_said_in_a_sentence(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    runs.scenes_run(tmp_path / "run", "vse++")
    monkeypatch.chdir(tmp_path)
    assert run(["report", *arguments]) == 1
    shown = capsys.readouterr()
    assert message in shown.err
    assert "Traceback" not in shown.err
    assert not (tmp_path / "run" / "report.html").exists()
