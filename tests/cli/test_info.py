import json
from pathlib import Path

import pytest

from diptych import __version__
from diptych.cli.info import size_text
from diptych.cli.main import run
from diptych.search.index import Index
from tests.search import tiny
from tests.search.conftest import own_folders, vse_folder

__all__ = ["own_folders", "vse_folder"]


@pytest.fixture
def place(tmp_path: Path, vse_folder: str) -> Path:
    folder = tiny.fill(tmp_path / "pictures", 3)
    (folder / "bad.png").write_bytes(b"x")
    (folder / "words.txt").write_text("two dog\n")
    tiny.fill(tmp_path / "pictures-2", 1, start=5)
    with Index.create(tmp_path / "i.db", vse_folder, device="cpu") as made:
        made.sync(folder, what="both", exclude=["x*"], metadata={str(folder / "001.png"): {"album": "snow"}})
        made.sync(tmp_path / "pictures-2")
    (tmp_path / "pictures-2").rename(tmp_path / "away")
    return tmp_path


def test_what_an_index_is(place: Path, vse_folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["info", "--index", str(place / "i.db"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["model"], told["pictures"], told["sentences"], told["dim"]) == (vse_folder, 4, 1, 8)
    assert (told["columns"], told["broken"], told["made_with"]) == (
        ["album", "bytes", "height", "width"],
        1,
        f"diptych {__version__}",
    )
    assert told["roots"] == [
        {"path": str(place / "pictures"), "wanted": "both, without x*", "entries": 4, "there": True},
        {"path": str(place / "pictures-2"), "wanted": "pictures", "entries": 1, "there": False},
    ]
    files = [path for path in place.iterdir() if path.name.startswith("i.db")]
    assert told["bytes"] == sum(path.stat().st_size for path in files)
    assert told["made"] <= told["changed"]


def test_for_people(place: Path, vse_folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["info", "--index", str(place / "i.db")]) == 0
    lines = dict(line.split(None, 1) for line in capsys.readouterr().out.splitlines() if not line.startswith(" "))
    assert lines["entries"] == "4 pictures, 1 sentence"
    assert lines["unreadable"].startswith("1 picture;")
    assert lines["folders"] == f"{place}/pictures (both, without x*; 4 entries)"
    assert lines["vectors"] == "8 numbers each"
    assert lines["size"].endswith("KiB")


def test_without_an_index(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["info", "--index", str(tmp_path / "none.db")]) == 1
    assert "no such index" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 bytes"), (1023, "1,023 bytes"), (1536, "1.5 KiB"), (5 << 30, "5.0 GiB"), (3 << 40, "3.0 TiB")],
)
def test_sizes(count: int, text: str) -> None:
    assert size_text(count) == text
