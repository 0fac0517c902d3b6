import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from diptych.common.errors import DiptychError
from diptych.search.filling.broken import broken_keys
from diptych.search.filling.roots import read_roots
from diptych.search.filling.skipped import Skipped
from diptych.search.filling.sync import SyncReport
from diptych.search.in_step import Effort, forget, joined, sync_all
from diptych.search.index import Index
from tests.data.clips import RED, write_clip
from tests.data.dng import write_dng
from tests.search import tiny


@pytest.fixture
def index(tmp_path: Path, vse_folder: str) -> Iterator[Index]:
    with Index.create(tmp_path / "i.db", vse_folder, device="cpu") as made:
        yield made


def names(index: Index) -> list[str]:
    return [Path(stamp.key).name for stamp in index.store.stamps()]


def test_all_folders_as_they_were_wanted(index: Index, tmp_path: Path) -> None:
    one, two = tiny.fill(tmp_path / "one", 2), tiny.fill(tmp_path / "two", 2, start=2)
    index.sync(one, exclude=["*-draft.png"])
    (two / ".hidden.png").write_bytes((two / "002.png").read_bytes())
    (two / "words.txt").write_text("two dog\n")
    index.sync(two, what="both", hidden=True)
    tiny.fill(one, 1, start=7)
    (one / "x-draft.png").write_bytes((one / "000.png").read_bytes())
    tiny.fill(two, 1, start=8)
    (two / "words.txt").write_text("two dog\na cat\n")
    report = sync_all(index)
    assert (report.added, report.unchanged) == (3, 5)
    assert names(index) == [
        "000.png", "001.png", "007.png",
        ".hidden.png", "002.png", "003.png", "008.png", "words.txt#1", "words.txt#2",
    ]  # fmt: skip


def test_only_some_and_otherwise_wanted(index: Index, tmp_path: Path) -> None:
    one, two = tiny.fill(tmp_path / "one", 1), tiny.fill(tmp_path / "two", 1, start=2)
    index.sync(one, two)
    tiny.fill(one, 1, start=5)
    tiny.fill(two, 1, start=6)
    assert sync_all(index, only=[str(two)]).added == 1
    report = sync_all(index, wanted=lambda root: replace(root, choice=replace(root.choice, exclude=("005.png",))))
    assert report.added == 0
    assert sync_all(index).added == 0  # it is remembered
    assert {root.choice.exclude for root in read_roots(index.store.properties)} == {("005.png",)}


def test_a_picture_that_moved_between_folders_is_known_again(index: Index, tmp_path: Path) -> None:
    one, two = tiny.fill(tmp_path / "one", 2), tiny.fill(tmp_path / "two", 1, start=2)
    index.sync(one)
    index.sync(two)
    (one / "000.png").rename(two / "000.png")
    report = sync_all(index)
    assert (report.moved, report.added, report.deleted) == (1, 0, 0)


def test_a_folder_that_is_not_there_costs_the_others_nothing(index: Index, tmp_path: Path) -> None:
    one, two = tiny.fill(tmp_path / "one", 2), tiny.fill(tmp_path / "two", 1, start=2)
    index.sync(one, two)
    tiny.fill(two, 1, start=5)
    one.rename(tmp_path / "away")
    report = sync_all(index)
    assert [str(m) for m in report.missing] == [f"{one}: all 2 files that the index knows are gone"]
    assert (report.added, len(index), index.roots) == (1, 4, (str(one), str(two)))
    report = sync_all(index, Effort(delete=True))
    assert (report.deleted, len(index), index.roots) == (2, 2, (str(two),))


def test_a_file_that_is_gone_is_gone(index: Index, tmp_path: Path) -> None:
    folder = tiny.fill(tmp_path / "one", 2)
    index.sync(folder / "000.png", folder / "001.png")
    (folder / "000.png").unlink()
    report = sync_all(index)
    assert (report.deleted, report.missing, index.roots) == (1, (), (str(folder / "001.png"),))


def test_the_table_of_metadata_is_read_again(index: Index, tmp_path: Path) -> None:
    folder, table = tiny.fill(tmp_path / "one", 2), tmp_path / "albums.csv"
    table.write_text("path,album\none/000.png,snow\n")
    index.sync(folder, metadata=table)
    table.write_text("path,album\none/000.png,snow\none/001.png,sea\n")
    sync_all(index)
    assert [record.metadata["album"] for record in index.store.records()] == ["snow", "sea"]
    table.rename(tmp_path / "elsewhere.csv")
    for _ in range(2):
        report = sync_all(index)
        assert [str(problem) for problem in report.problems] == [
            f"{table}: the table of metadata is not there; columns stay as they are"
        ]
    assert "album" in index.store.columns()


def test_forgetting(index: Index, tmp_path: Path) -> None:
    outer = tiny.fill(tmp_path / "one", 1)
    inner, beside = tiny.fill(outer / "two", 1, start=1), tiny.fill(tmp_path / "one-more", 1, start=2)
    for folder in (inner, beside):
        (folder / "bad.png").write_bytes(b"x")
    index.sync(inner)
    index.sync(outer, beside)
    assert forget(index, str(outer)) == (str(outer), str(inner))
    assert index.roots == (str(beside),)
    assert broken_keys(index.store.properties) == [str(beside / "bad.png")]


def test_an_index_from_before_choices_were_remembered(index: Index, tmp_path: Path) -> None:
    folder = tiny.fill(tmp_path / "one", 1)
    index.store.set_properties({f"root:{folder}": ""})
    assert sync_all(index).added == 1
    told = json.loads(index.store.properties[f"root:{folder}"])
    assert told == {"what": "pictures", "exclude": [], "hidden": False, "archives": False}


def test_without_any_folder(index: Index, tmp_path: Path) -> None:
    with pytest.raises(DiptychError, match="filled from no folder yet"):
        sync_all(index)


def test_two_runs_are_told_as_one() -> None:
    raw, text = Skipped(".cr2", 2, "pip install 'diptych[raw]'"), Skipped(".xmp", 5)
    one, two = SyncReport(skipped=(raw, text)), SyncReport(skipped=(Skipped(".mp4", 1), replace(raw, count=3)))
    both = joined(one, two)
    assert both.skipped == (replace(raw, count=5), text, Skipped(".mp4", 1))
    assert (both.nothing_read, both.unread) == (True, 5)
    assert not joined(both, SyncReport(unchanged=1)).nothing_read  # of another folder something was


def test_raw_files_and_videos_of_all_folders(index: Index, tmp_path: Path) -> None:
    pytest.importorskip("rawpy", reason="RAW files need diptych[raw]")
    pytest.importorskip("av", reason="videos need diptych[video]")
    one, two = tiny.fill(tmp_path / "one", 1), tiny.fill(tmp_path / "two", 1, start=2)
    index.sync(one)
    index.sync(two)
    write_dng(one / "raw.dng", Image.new("RGB", (640, 480), RED))
    write_clip(two / "clip.mp4", [(RED, 1.0)])
    (one / "bad.cr2").write_bytes(b"no picture")
    (two / "bad.mov").write_bytes(b"no video")
    report = sync_all(index)
    assert (report.added, report.unchanged, report.remembered) == (2, 2, 0)
    assert sorted(Path(problem.where).name for problem in report.problems) == ["bad.cr2", "bad.mov"]
    again = sync_all(index)
    assert (again.added, again.unchanged, again.remembered) == (0, 4, 2)
    assert set(again.problems) == set(report.problems)
    assert sync_all(index, Effort(retry=True)).remembered == 0
    write_clip(two / "bad.mov", [(RED, 1.0)])
    assert sync_all(index).added == 1
    assert [Path(key).name for key in broken_keys(index.store.properties)] == ["bad.cr2"]
