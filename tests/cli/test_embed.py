import json
from pathlib import Path

import pytest

from diptych.cli.main import run
from diptych.search.filling import embed_parts
from tests.search.conftest import own_folders, pictures, vse_folder

__all__ = ["own_folders", "pictures", "vse_folder"]


@pytest.fixture(autouse=True)
def briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embed_parts, "MEASURED", 0.1)


def test_pictures_are_embedded_once_and_an_index_is_made_of_them(
    pictures: Path, vse_folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (pictures / "bad.jpg").write_bytes(b"x")
    out, index = tmp_path / "out", str(tmp_path / "i.db")
    arguments = ["embed", str(pictures), "--out", str(out), "--model", vse_folder, "--part", "3", "--device", "cpu"]
    assert run(arguments) == 0
    told = capsys.readouterr()
    assert told.out.startswith(f"{out}: 6 embedded in ")
    assert "all 3 parts are there\n" in told.out
    assert " a second in all, " in told.out
    assert "by the model alone: " in told.out
    assert told.err == f"note: 1 thing could not be read; see bad-*.jsonl in {out}\n"
    assert run(arguments) == 0
    assert capsys.readouterr().out == f"{out}: nothing to do; all 3 parts are there\n"
    assert run([*arguments, "--strict", "--json"]) == 1
    outcome = json.loads(capsys.readouterr().out)
    assert (outcome["parts"], outcome["before"], outcome["embedded"], outcome["bad"]) == (3, 3, 0, 1)
    assert run([*arguments[:-4], "--part", "4"]) == 1
    assert "begun with part 3, not 4" in capsys.readouterr().err

    assert run(["index", "--import", str(out), "--index", index, "--json"]) == 0
    outcome = json.loads(capsys.readouterr().out)
    assert (outcome["imported"], outcome["entries"], outcome["model"]) == (6, 6, vse_folder)
    assert run(["search", "a red dog", "--index", index, "--paths", "--device", "cpu"]) == 0
    assert str(pictures / "000.png") in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--workers", "2"], "--workers: is for --engine ray"),
        (["--ray-address", "auto"], "--ray-address: is for --engine ray"),
        (["--engine", "ray", "--ray-address", "127.0.0.1:1"], "127.0.0.1:1: Ray cannot be reached: "),
        (["--engine", "ray", "--device", "cuda"], "--device: Ray gives each worker its GPUs"),
    ],
)
def test_options_that_lead_nowhere_are_told(
    options: list[str],
    words: str,
    pictures: Path,
    vse_folder: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("ray", reason="the extra ray is not installed")
    assert run(["embed", str(pictures), "--out", str(tmp_path / "out"), "--model", vse_folder, *options]) == 1
    assert words in capsys.readouterr().err
