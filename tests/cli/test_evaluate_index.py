import json
from pathlib import Path

import pytest

from diptych.cli.main import run
from diptych.search.index import Index
from tests.search import tiny
from tests.search.conftest import own_folders, vse_folder

__all__ = ["own_folders", "vse_folder"]


@pytest.fixture
def index(vse_folder: str, tmp_path: Path) -> str:
    """An index of eight pictures."""
    with Index.create(tmp_path / "i.db", vse_folder, device="cpu") as made:
        made.sync(tiny.fill(tmp_path / "pictures", 8))
    return str(tmp_path / "i.db")


def test_recall_and_latency_of_an_index(index: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "queries.txt").write_text("two dog\na red boat\n")
    arguments = ["evaluate-index", "--index", index, "--queries", str(tmp_path / "queries.txt"), "--top", "3"]
    assert run([*arguments, "--device", "cpu", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    told = {name: figures[name] for name in ("entries", "queries", "top", "exact", "recall")}
    assert told == {"entries": 8, "queries": 2, "top": 3, "exact": True, "recall": 1.0}
    assert figures["latency_ms"]["median"] > 0
    assert run([*arguments, "--device", "cpu"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "8 entries, 2 queries, exact"
    assert "recall against an exact search, 3 results: 1.0000" in lines


def test_with_and_without_re_ranking(
    index: str, vse_folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    camp = tiny.save_camp(tmp_path / "camp", vse_folder)
    arguments = ["evaluate-index", "--index", index, "--rerank", camp, "--depth", "5", "--fusion", "sum", "--json"]
    assert run([*arguments, "--device", "cpu"]) == 0
    second = json.loads(capsys.readouterr().out)["rerank"]
    assert (second["model"], second["depth"], second["fusion"]) == (camp, 5, "sum")
    assert second["stages_ms"]["rerank"] > 0


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (["--index", "i.db", "--depth", "5"], 1, "--depth: belongs to --rerank"),
        (["--index", "i.db", "--fusion", "rrf"], 1, "--fusion: belongs to --rerank"),
        (["--index", "i.db", "--rerank", "x", "--depth", "0.1"], 2, "'--depth'"),
        (["--index", "i.db", "--rerank", "x", "--depth", "0"], 2, "'--depth'"),
        (["--index", "i.db", "--split", "test"], 2, "--split"),
        (["--index", "missing.db"], 1, "missing.db"),
        ([], 1, "there is no index yet"),
    ],
)
def test_mistakes_are_told(
    arguments: list[str],
    status: int,
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert run(["evaluate-index", *arguments]) == status
    assert told in capsys.readouterr().err


def test_an_empty_index_has_nothing_to_evaluate(
    vse_folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Index.create(tmp_path / "i.db", vse_folder, device="cpu").close()
    assert run(["evaluate-index", "--index", str(tmp_path / "i.db")]) == 1
    assert "the index is empty" in capsys.readouterr().err
