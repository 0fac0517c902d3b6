"""`diptych data`: what it prints, its exit status, and every problem at once."""

import json
from pathlib import Path

import pytest

from diptych.cli.main import run
from tests.data.making import karpathy, write_json, write_pictures, write_precomp


def good(folder: Path) -> Path:
    write_pictures(folder)
    return write_json(folder / "dataset.json", karpathy())


def bad(folder: Path) -> Path:
    data = karpathy()
    data["images"][0]["sentences"][1]["raw"] = ""
    path = write_json(folder / "dataset.json", data)
    write_pictures(folder, ["a.jpg", "b.jpg"])
    (folder / "b.jpg").write_text("[bold]not[/bold] a picture")
    return path


def test_it_says_what_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["data", str(good(tmp_path))]) == 0
    out = capsys.readouterr().out
    for words in ["tiny", "Karpathy JSON", "6, 2 a picture", "3 to 5", "12", "train", "A red boat.", "no problems"]:
        assert words in out


def test_it_says_what_features_are_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["data", str(write_precomp(tmp_path / "p", {"train": 3, "dev": 4})), "--dev-limit", "2"]) == 0
    out = capsys.readouterr().out
    assert "7 rows of dimension 6" in out
    assert "4 a picture" in out
    assert "0 of 5 pictures have them" in out


def test_every_problem_is_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = bad(tmp_path)
    assert run(["data", str(path)]) == 1
    out = capsys.readouterr().out
    assert "3 problems" in out
    assert f"{path}: images[0].sentences[1].raw: the caption is empty" in out
    assert f"{tmp_path / 'b.jpg'}: not a picture of a known format" in out
    assert f"{tmp_path / 'c.jpg'}: no such picture; expected by dataset.json for the id 'c'" in out


def test_skip_bad_goes_on_and_lists_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["data", str(bad(tmp_path)), "--skip-bad", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["pictures"] == 1
    assert said["captions"] == 1
    assert len(said["problems"]) == 3
    assert said["problems"][2] == {"where": str(tmp_path / "b.jpg"), "what": "not a picture of a known format"}


def test_quick_decodes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = good(tmp_path)
    (tmp_path / "b.jpg").write_text("not a picture")
    assert run(["data", str(path), "--quick"]) == 0
    assert "3 (none decoded)" in capsys.readouterr().out
    assert run(["data", str(path), "--sample", "2"]) == 0
    assert "3 (2 decoded)" in capsys.readouterr().out


def test_one_split(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["data", str(good(tmp_path)), "--split", "dev", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["splits"] == {"val": {"pictures": 1, "captions": 2}}


def test_what_cannot_be_read_at_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "dataset.json"
    path.write_text('{"images": [\n')
    assert run(["data", str(path)]) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith(f"diptych data: {path}: line 2, column 1: not valid JSON")
    assert captured.out == ""
