"""Photographs, RAW files and videos as people have them, from the folder to the result."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from diptych.cli.main import run
from diptych.data.written import text_reader
from diptych.search.index import Index
from diptych.search.stores.keys import file_of, frame_key, open_key, second_of
from diptych.search.stores.store import Condition
from tests.data.clips import BLUE, GREEN, RED, write_clip
from tests.data.dng import write_dng
from tests.search import tiny

DAYS = {"a.jpg": "2019:07:04 12:30:00", "b.jpg": "2021:01:01 00:00:00", "c.jpg": None}


@pytest.fixture
def album(tmp_path: Path) -> Path:
    """Three pictures whose files are all of today; two say when they were taken."""
    folder = tmp_path / "album"
    folder.mkdir()
    for i, (name, day) in enumerate(DAYS.items()):
        exif = Image.Exif()
        exif[271], exif[272] = "Leica", f"M{i}"
        if day:
            exif.get_ifd(0x8769)[36867] = day
        noise = np.random.default_rng(i).integers(0, 255, (200 + 10 * i, 300, 3), dtype=np.uint8)
        Image.fromarray(noise).save(folder / name, exif=exif)
    return folder


def names(results: list[dict[str, object]]) -> list[str]:
    return [Path(str(result["path"])).name for result in results]


def searched(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, object]]:
    capsys.readouterr()
    assert run(["search", "a red dog", "--json", "--device", "cpu", *arguments]) == 0
    results: list[dict[str, object]] = json.loads(capsys.readouterr().out)["results"]
    return results


def test_a_picture_is_found_by_the_day_it_was_taken(
    album: Path, vse_folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = ["--index", str(tmp_path / "i.db")]
    assert run(["index", str(album), *own, "--model", vse_folder, "--device", "cpu"]) == 0
    assert names(searched(capsys, *own, "--filter", "date<2020")) == ["a.jpg"]
    assert names(searched(capsys, *own, "--filter", "date=2021-01-01")) == ["b.jpg"]
    (file_dated,) = searched(capsys, *own, "--filter", "date>=2022")
    assert (Path(str(file_dated["path"])).name, file_dated["dated"]) == ("c.jpg", "file")
    assert names(searched(capsys, *own, "--sort", "date")) == ["a.jpg", "b.jpg", "c.jpg"]
    assert names(searched(capsys, *own, "--sort", "-date")) == ["c.jpg", "b.jpg", "a.jpg"]
    assert names(searched(capsys, *own, "--sort=-height")) == ["c.jpg", "b.jpg", "a.jpg"]
    (found,) = searched(capsys, *own, "--filter", "camera=Leica M0", "--filter", "width=300", "--filter", "bytes>100")
    assert found["metadata"] == {
        "taken": "2019-07-04T12:30:00", "camera": "Leica M0", "width": 300, "height": 200,
        "bytes": (album / "a.jpg").stat().st_size,
    }  # fmt: skip
    assert run(["search", "a red dog", "--sort", "heigth", *own]) == 1
    assert "did you mean 'height'?" in capsys.readouterr().err


def test_raw_files_are_indexed_by_their_previews(vse_folder: str, tmp_path: Path) -> None:
    pytest.importorskip("rawpy", reason="RAW files need diptych[raw]")
    folder = tiny.fill(tmp_path / "album", 2)
    seen = Image.open(folder / "001.png").resize((640, 480), Image.Resampling.NEAREST)
    write_dng(folder / "raw.DNG", seen)
    with Index.create(tmp_path / "i.db", vse_folder, device="cpu") as index:
        report = index.sync(folder)
        assert (report.added, report.problems, report.skipped) == (3, (), ())
        like = index.search(folder / "001.png", top=2).results
        assert {Path(r.path).name for r in like} == {"001.png", "raw.DNG"}
        assert index.count([Condition("date", "=", "2019-07-04")]) == 1
        assert index.sync(folder).unchanged == 3
        assert Path(index.search(folder / "raw.DNG", top=1).results[0].path).name == "raw.DNG"


def test_a_folder_that_cannot_be_read_says_what_would(
    vse_folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("diptych.search.filling.skipped.raw_is_read", lambda: False)
    monkeypatch.setattr("diptych.search.filling.skipped.video_is_read", lambda: False)
    folder = tmp_path / "album"
    folder.mkdir()
    for i in range(3):
        (folder / f"{i}.CR2").write_bytes(b"x")
    (folder / "clip.mp4").write_bytes(b"x")
    arguments = ["index", str(folder), "--index", str(tmp_path / "i.db"), "--model", vse_folder, "--device", "cpu"]
    assert run(arguments) == 1
    told = capsys.readouterr().err
    assert "4 skipped: 3 .cr2 (pip install 'diptych[raw]'), 1 .mp4 (pip install 'diptych[video]')" in told
    assert "nothing of what is there could be read" in told
    tiny.fill(folder, 1)
    assert run([*arguments, "--json"]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out)["skipped"] == {".cr2": 3, ".mp4": 1}
    assert "4 skipped" in told.err
    assert run([*arguments, "--strict"]) == 1
    capsys.readouterr()
    assert run(["index", *arguments[2:4], "--strict"]) == 1
    assert "4 skipped: 3 .cr2" in capsys.readouterr().err


def test_a_video_is_found_by_its_scenes(vse_folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("av", reason="videos need diptych[video]")
    folder = tiny.fill(tmp_path / "album", 1)
    clip = write_clip(folder / "clip.mp4", [(RED, 4.0), (GREEN, 38.0), (BLUE, 4.0)], keys=10)
    (folder / "broken.mov").write_bytes(b"no video")
    seconds = [0.0, 4.0, 14.0, 24.0, 34.0, 42.0]
    with Index.create(tmp_path / "i.db", vse_folder, device="cpu") as index:
        report = index.sync(folder)
        assert report.added == 1 + len(seconds)
        assert [Path(problem.where).name for problem in report.problems] == ["broken.mov"]
        best = index.search(Image.new("RGB", (96, 64), BLUE), top=1).results[0]
        assert (best.file, best.second, best.shown) == (str(clip), 42.0, f"{clip} at 0:42")
        assert best.to_json()["path"] == str(clip)
        assert (best.to_json()["kind"], best.to_json()["second"]) == ("video", 42.0)
        assert best.metadata["duration"] == 46.0
        shown = open_key(best.key)()
        assert np.asarray(shown)[30:].mean((0, 1)) == pytest.approx(BLUE, abs=6)
        frames = index.search("a red dog", top=20, where=[Condition("second", ">=", 0)], sort="second").results
        assert [frame.second for frame in frames] == seconds
        again = index.sync(folder)
        assert (again.added, again.changed, again.unchanged) == (0, 0, 2)
        write_clip(clip, [(GREEN, 5.0)])
        changed = index.sync(folder)
        assert (changed.deleted, len(index)) == (5, 2)
        clip.unlink()
        index.sync(folder)
        assert len(index) == 1
    own = ["--index", str(tmp_path / "i.db"), "--device", "cpu"]
    write_clip(clip, [(GREEN, 1.0)])
    assert run(["index", str(folder), *own]) == 0
    capsys.readouterr()
    assert run(["search", "a red dog", *own, "--path", "*.mp4*"]) == 0
    assert capsys.readouterr().out.rstrip().endswith("clip.mp4 at 0:00")
    write_clip(clip, [(GREEN, 2.0), (RED, 2.0)], keys=10)
    assert run(["index", *own]) == 0
    capsys.readouterr()
    assert run(["search", "a red dog", *own, "--path", "*.mp4*", "--paths"]) == 0
    assert capsys.readouterr().out == f"{clip}\n"  # once, whatever it was found for
    assert run(["search", "a red dog", *own, "--filter", "camera=Leica"]) == 1
    assert capsys.readouterr().err == "nothing found\n"  # a column that is known, though nothing has it


def test_keys_of_frames() -> None:
    key = frame_key("/a/b.mp4", 42.0625)
    assert (file_of(key), second_of(key)) == ("/a/b.mp4", 42.062)
    assert sorted([frame_key("v.mov", s) for s in (9, 10, 100, 99999)], key=second_of) == sorted(  # type: ignore[arg-type, type-var]
        frame_key("v.mov", s) for s in (9, 10, 100, 99999)
    )
    for other in ("/a/b.mp4", "/a/b.mp4#1", "/a/b.jpg#00001.000", "/a/b.txt#3"):
        assert second_of(other) is None
    assert file_of("/a/b.mp4#1") == "/a/b.mp4#1"  # a file of this name


def test_what_is_written_in_a_picture_finds_it(
    vse_folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("rapidocr", reason="reading text in pictures needs diptych[ocr]")
    pytest.importorskip("onnxruntime", reason="reading text in pictures needs diptych[ocr]")
    folder = tiny.fill(tmp_path / "album", 4)
    sign = Image.new("RGB", (480, 160), "white")
    ImageDraw.Draw(sign).text((30, 40), "Harbour 42", fill="black", font=ImageFont.load_default(56))
    sign.save(folder / "sign.png")
    own = ["index", str(folder), "--index", str(tmp_path / "i.db"), "--device", "cpu", "--json"]
    assert run([*own, "--model", vse_folder]) == 0
    capsys.readouterr()
    assert run([*own, "--text-in-pictures"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["added"], told["unchanged"], told["described"]) == (0, 5, 5)
    found = searched(capsys, "--index", str(tmp_path / "i.db"), "--filter", "written~*Harbour*")
    assert names(found) == ["sign.png"]
    with Index.open(tmp_path / "i.db", device="cpu") as index:
        first = index.search("the harbour", top=2).results[0]
        assert (Path(first.path).name, first.written) == ("sign.png", "Harbour 42")
        assert index.sync(folder).described == 0  # it is read once
        sign.rotate(2, fillcolor="white").save(folder / "later.png")
        assert index.sync(folder).described == 1  # and of what comes later too
        assert index.count([Condition("written", "matches", "*42*")]) == 2


def test_without_the_reader_it_says_what_is_missing(
    vse_folder: str, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "rapidocr", None)
    text_reader.cache_clear()
    arguments = ["index", str(pictures), "--index", str(tmp_path / "i.db"), "--model", vse_folder]
    assert run([*arguments, "--text-in-pictures"]) == 1
    assert "install diptych[ocr]" in capsys.readouterr().err
