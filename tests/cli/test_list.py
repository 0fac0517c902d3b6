import json
from pathlib import Path

import pytest

from diptych.cli.main import run
from diptych.search.index import Index
from tests.search import tiny
from tests.search.conftest import own_folders, vse_folder

__all__ = ["own_folders", "vse_folder"]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tiny.fill(tmp_path_factory.mktemp("list") / "pictures", 4)
    (folder / "words.txt").write_text("two dog\n")
    return folder


@pytest.fixture(scope="module")
def index(vse_folder: str, pictures: Path) -> str:
    address = pictures.with_name("i.db")
    columns = {str(pictures / "001.png"): {"album": "snow", "stars": 3}, str(pictures / "002.png"): {"album": "a\tb"}}
    with Index.create(address, vse_folder, device="cpu") as made:
        made.sync(pictures, what="both", metadata=columns)
    return str(address)


def listed(capsys: pytest.CaptureFixture[str], index: str, *arguments: str, status: int = 0) -> list[str]:
    assert run(["list", "--index", index, *arguments]) == status
    return capsys.readouterr().out.splitlines()


def test_a_file_is_named_once_however_much_is_in_it(
    vse_folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "words.txt").write_text("two dog\na red boat\n")
    (tmp_path / "more.txt").write_text("a cat\n")
    with Index.create(tmp_path / "i.db", vse_folder, device="cpu") as made:
        made.sync(tmp_path, what="both")
    every = [f"{tmp_path}/more.txt", f"{tmp_path}/words.txt"]
    assert listed(capsys, str(tmp_path / "i.db"), "--paths") == every
    assert run(["list", "--index", str(tmp_path / "i.db"), "-0"]) == 0
    assert capsys.readouterr().out.split("\0")[:-1] == every


def test_paths_in_order(index: str, pictures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    every = [f"{pictures}/00{i}.png" for i in range(4)] + [f"{pictures}/words.txt#1"]
    assert listed(capsys, index) == every
    assert listed(capsys, index, "--what", "pictures", "-n", "2") == every[:2]
    assert listed(capsys, index, "--what", "sentences") == every[4:]
    assert listed(capsys, index, "--paths", "--path", "00[12].png") == every[1:3]
    assert listed(capsys, index, "*/002.png", "00[12].png", "/none*") == every[1:3]
    assert listed(capsys, index, "--filter", "album=snow") == every[1:2]
    assert run(["list", "--index", index, "-0", "-n", "2"]) == 0
    assert capsys.readouterr().out == f"{every[0]}\0{every[1]}\0"


def test_columns(index: str, pictures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = listed(capsys, index, "--columns", "album,stars", "--columns", "kind", "--columns", "text")
    assert rows == ["\t\tpicture\t", "snow\t3\tpicture\t", "a b\t\tpicture\t", "\t\tpicture\t", "\t\tsentence\ttwo dog"]
    size = (pictures / "000.png").stat().st_size
    assert listed(capsys, index, "--columns", "size", "-n", "1") == [str(size)]


def test_json(index: str, pictures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = [json.loads(line) for line in listed(capsys, index, "--json")]
    size = (pictures / "001.png").stat().st_size
    assert told[1]["metadata"] == {"album": "snow", "stars": 3, "width": 40, "height": 30, "bytes": size}
    assert (told[0]["path"], told[0]["kind"], told[4]["text"]) == (f"{pictures}/000.png", "picture", "two dog")
    assert told[0]["date"].startswith("20")
    assert "text" not in told[0]


def test_nothing_and_mistakes(index: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert listed(capsys, index, "--path", "none*", status=1) == []
    assert run(["list", "--index", index, "--columns", "albm"]) == 1
    assert "did you mean 'album'" in capsys.readouterr().err
    assert run(["list", "--index", index, "--filter", "albm=x"]) == 1
    assert "did you mean 'album'" in capsys.readouterr().err
    assert run(["list"]) == 1
    assert "there is no index yet" in capsys.readouterr().err
