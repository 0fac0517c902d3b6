"""A user's word for a model: what ships, a run, a folder, or a name of the hub."""

from pathlib import Path

import pytest

from diptych.common import model_place
from diptych.common.errors import DiptychError
from diptych.common.model_place import ModelPlace, canonical_name, find_model


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "run"
    (folder / "best").mkdir(parents=True)
    (folder / "best" / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    return folder


def test_where_the_model_is(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    best = ModelPlace(str(run / "best"), run / "best")
    assert find_model(run) == find_model(run / "best") == best
    assert find_model("run") == ModelPlace(str(run / "best"), Path("run/best"))
    assert find_model("someone/model") == ModelPlace("someone/model", None)
    monkeypatch.setenv("HOME", str(run.parent))
    assert find_model("~/run") == best


def test_what_ships_comes_before_a_folder_of_its_name(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run.rename("default")
    shipped = Path("shipped")
    monkeypatch.setattr(model_place, "shipped_folder", lambda name: shipped if name == "default" else None)
    assert find_model("default") == ModelPlace("default", shipped)
    assert find_model("./default").folder == Path("default/best")
    monkeypatch.setattr(model_place, "shipped_folder", lambda name: None)
    with pytest.raises(DiptychError, match="default: this installation of Diptych does not carry that model"):
        find_model("default")


@pytest.mark.parametrize("word", ["./nothing", "/nothing", "nothing", "a/b/c", "~/no/such"])
def test_where_there_is_none_one_sentence_says_so(run: Path, word: str) -> None:
    with pytest.raises(DiptychError, match="no such folder or model; expected `default`, a run") as told:
        find_model(word)
    assert told.value.where == word
    assert canonical_name(word) == word


def test_a_folder_without_a_model(run: Path) -> None:
    (run / "best" / "config.json").unlink()
    with pytest.raises(DiptychError, match=r"run: expected a run with best/config\.json"):
        find_model("run")
    assert canonical_name("run") == str(run)
