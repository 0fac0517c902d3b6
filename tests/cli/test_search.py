import io
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
    folder = tiny.fill(tmp_path_factory.mktemp("search") / "pictures", 6)
    (folder / "words.txt").write_text("two dog\na red boat\n")
    return folder


@pytest.fixture(scope="module")
def index(vse_folder: str, pictures: Path) -> str:
    address = pictures.with_name("i.db")
    with Index.create(address, vse_folder, device="cpu") as made:
        made.sync(pictures, what="both", metadata={str(pictures / "001.png"): {"album": "holiday"}})
    return str(address)


def results(capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    return [line.split("\t") for line in capsys.readouterr().out.splitlines()]


def test_score_and_path_a_line(index: str, pictures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["search", "two dog", "--index", index, "--top", "3"]) == 0
    lines = results(capsys)
    with Index.open(index) as opened:
        expected = opened.search("two dog", top=3).results
    assert lines == [[f"{r.score:.3f}", r.path] for r in expected]


def test_json(index: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["search", "two", "dog", "--index", index, "--json", "--top", "2"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert len(told["results"]) == 2
    assert told["results"][0].keys() >= {"path", "score", "confidence", "kind"}
    assert told["timings"].keys() >= {"encode", "retrieve", "total"}
    assert told["exact"] is True


def test_pictures_signs_and_sentences(index: str, pictures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = str(pictures / "003.png")
    assert run(["search", "--image", picture, "--index", index, "--top", "1"]) == 0
    assert results(capsys) == [["1.000", picture]]
    assert run(["search", "dog", "+", f"9:@{picture}", "-", "snow", "--index", index, "--top", "1"]) == 0
    assert results(capsys)[0][1] == picture
    assert run(["search", "two dog", "--sentences", "--index", index]) == 0
    assert results(capsys)[0] == ["1.000", f"{pictures}/words.txt#1", "two dog"]


def test_filters(index: str, pictures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["search", "dog", "--index", index]
    assert run([*command, "--filter", "album=holiday"]) == 0
    assert [line[1] for line in results(capsys)] == [str(pictures / "001.png")]
    assert run([*command, "--path", "pictures/00[12].png", "--filter", "date>=2020"]) == 0
    assert len(results(capsys)) == 2
    assert run([*command, "--filter", "date<1990"]) == 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "nothing found\n")
    assert run([*command, "--threshold", "5"]) == 0
    assert results(capsys) == []
    assert run([*command, "--confidence", "1"]) == 0


def test_queries_from_standard_input(
    index: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = "two dog\n\n+ a cat - snow\n"
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    assert run(["search", "-", "--index", index, "--top", "2"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert [line for line in out if line.startswith("#")] == ["# two dog", "# + a cat - snow"]
    assert len(out) == 6
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    assert run(["search", "-", "--index", index, "--json"]) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [t["query"] for t in told] == ["two dog", "+ a cat - snow"]


def test_two_stages(index: str, vse_folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    camp = tiny.save_camp(tmp_path / "camp", vse_folder)
    command = ["search", "two dog", "--index", index, "--rerank", camp, "--depth", "4", "--json"]
    for fusion in ("replace", "sum", "rrf"):
        assert run([*command, "--fusion", fusion]) == 0
        told = json.loads(capsys.readouterr().out)
        assert len(told["results"]) == 4
        assert told["timings"]["rerank"] > 0
        assert told["results"][0].keys() >= {"retrieval", "rerank"}
    assert run([*command, "--fusion", "mean"]) == 2


def test_duplicates_are_shown_as_one(vse_folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tiny.fill(tmp_path / "pictures", 1)
    (folder / "copy.png").write_bytes((folder / "000.png").read_bytes())
    with Index.create(tmp_path / "i.db", vse_folder, device="cpu") as made:
        made.sync(folder)
    assert run(["search", "dog", "--index", str(tmp_path / "i.db"), "--group-duplicates"]) == 0
    (line,) = results(capsys)
    assert line[2] == "(and 1 like it)"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["dog"], "there is no index yet"),
        (["dog", "--index", "none.db"], "no such index"),
        (["--index", "INDEX"], "the query is empty"),
        (["-", "snow", "--index", "INDEX"], "only subtracts"),
        (["dog", "--filter", "x", "--index", "INDEX"], "filter 'x'"),
        (["dog", "--image", "none.jpg", "--index", "INDEX"], "none.jpg: no such picture"),
        (["dog", "--rerank", "./none", "--index", "INDEX"], "no such folder"),
    ],
)
def test_mistakes_are_told_in_a_sentence(
    arguments: list[str], words: str, index: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["search", *(index if a == "INDEX" else a for a in arguments)]) == 1
    told = capsys.readouterr().err
    assert words in told
    assert "Traceback" not in told
