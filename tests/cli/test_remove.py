import json
from pathlib import Path

import pytest

from diptych.cli.main import run
from diptych.search.index import Index
from tests.search import tiny
from tests.search.conftest import own_folders, vse_folder

__all__ = ["own_folders", "vse_folder"]


@pytest.fixture
def place(tmp_path: Path, vse_folder: str) -> Path:
    """pictures/000.png to 003.png, pictures/deep/004.png, pictures-2/005.png, pictures/words.txt."""
    folder = tiny.fill(tmp_path / "pictures", 4)
    tiny.fill(folder / "deep", 1, start=4)
    tiny.fill(tmp_path / "pictures-2", 1, start=5)
    (folder / "words.txt").write_text("two dog\na cat\n")
    with Index.create(tmp_path / "i.db", vse_folder, device="cpu") as made:
        made.sync(folder, what="both", metadata={str(folder / "001.png"): {"album": "snow"}})
        made.sync(tmp_path / "pictures-2")
        made.add(sentences={"note": "a boat"})
    return tmp_path


def left(place: Path) -> set[str]:
    with Index.open(place / "i.db") as index:
        return {Path(stamp.key).name for stamp in index.store.stamps()}


ALL = {"000.png", "001.png", "002.png", "003.png", "004.png", "005.png", "words.txt#1", "words.txt#2", "note"}


@pytest.mark.parametrize(
    ("arguments", "gone"),
    [
        (["pictures/000.png"], {"000.png"}),
        (["PLACE/pictures/000.png", "note"], {"000.png", "note"}),
        (["pictures/deep"], {"004.png"}),
        (["pictures/"], ALL - {"005.png", "note"}),
        (["pictures/words.txt"], {"words.txt#1", "words.txt#2"}),
        (["00[12].png"], {"001.png", "002.png"}),
        (["--path", "deep/*"], {"004.png"}),
        (["--filter", "album=snow"], {"001.png"}),
        (["pictures", "--filter", "kind=sentence"], {"words.txt#1", "words.txt#2"}),
    ],
)
def test_what_is_meant_goes(
    place: Path,
    arguments: list[str],
    gone: set[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(place)
    command = ["remove", *(a.replace("PLACE", str(place)) for a in arguments), "--index", "i.db"]
    assert run([*command, "--dry-run", "--json"]) == 0
    assert {Path(key).name for key in json.loads(capsys.readouterr().out)["entries"]} == gone
    assert left(place) == ALL
    assert run([*command, "--yes", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["removed"] == len(gone)
    assert left(place) == ALL - gone
    assert all((place / "pictures" / f"00{i}.png").exists() for i in range(4))  # files stay


def test_it_is_shown_and_asked(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["remove", str(place / "pictures" / "000.png"), "--index", str(place / "i.db")]
    assert run([*command, "--dry-run"]) == 0
    assert capsys.readouterr().out == f"{place}/pictures/000.png\n"
    assert run(command) == 1
    told = capsys.readouterr().err
    assert "000.png\n" in told
    assert "1 entry would go; add --yes" in told
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.confirm", lambda *_, **__: False)
    assert run(command) == 1
    assert left(place) == ALL
    monkeypatch.setattr("typer.confirm", lambda *_, **__: True)
    assert run(command) == 0
    told = capsys.readouterr()
    assert "1 removed; 8 entries" in told.out
    assert "note: 1 of them are in folders that the index is kept in step with" in told.err
    assert left(place) == ALL - {"000.png"}


def test_a_folder_that_is_removed_does_not_come_back(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index = ["--index", str(place / "i.db")]
    assert run(["remove", str(place / "pictures"), *index, "--yes"]) == 0
    told = capsys.readouterr()
    assert f"{place}/pictures: would no longer be kept in step" in told.err
    assert "takes in again" not in told.err
    assert run(["index", *index, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["added"] == 0
    assert left(place) == {"005.png", "note"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "expected paths, a --filter or a --path"),
        (["none.png"], "nothing found"),
        (["--filter", "albun=snow"], "did you mean 'album'"),
    ],
)
def test_mistakes(place: Path, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["remove", *arguments, "--index", str(place / "i.db"), "--yes"]) == 1
    assert words in capsys.readouterr().err
    assert left(place) == ALL
