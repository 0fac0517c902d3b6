"""`diptych scenes` writes whole files, and the same ones again."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from diptych.cli.main import run
from diptych.data.read import read_collection
from diptych.data.scenes import Scene, captioned, draw, near_miss_set
from diptych.data.scenes import write as writing


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_what_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, sheet = tmp_path / "out", tmp_path / "sheet.png"
    arguments = f"scenes {out} --count 10 --seed 4 --size 64 --near-misses 6 --sheet {sheet} --json".split()
    assert run(arguments) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["pictures"] == 10
    assert summary["splits"] == {"train": 8, "val": 1, "test": 1}

    images = json.loads((out / "captions.json").read_text())["images"]
    assert [i["split"] for i in images] == ["train"] * 8 + ["val", "test"] + ["near-miss"] * 12
    assert [i["imgid"] for i in images] == list(range(22))
    assert [s["sentid"] for i in images for s in i["sentences"]] == list(range(50 + 12))
    listed = {f"{i['filepath']}/{i['filename']}" for i in images}
    assert listed == {f"pictures/{p.name}" for p in (out / "pictures").iterdir()}
    for index, (image, truth) in enumerate(zip(images[:10], lines(out / "truth" / "scenes.jsonl"), strict=True)):
        scene = captioned(4, index)
        assert [s["raw"] for s in image["sentences"]] == [c.text for c in scene.captions]
        assert image["sentences"][0]["tokens"] == scene.captions[0].words
        with Image.open(out / image["filepath"] / image["filename"]) as picture:
            assert np.array_equal(np.asarray(picture), np.asarray(draw(scene.scene, 64)))
        assert truth["picture"] == f"{image['filepath']}/{image['filename']}"
        assert truth["size"] == [64, 64]
        assert [len(t["boxes"]) for t in truth["things"]] == [t.count for t in scene.scene.things]
        assert [t["colour"] for t in truth["things"]] == [t.colour for t in scene.scene.things]
        for said, caption in zip(truth["sentences"], scene.captions, strict=True):
            assert said["things"] == [list(n) for n in caption.names]
            assert len(said["words"]) == len(said["things"])

    pairs = zip(lines(out / "truth" / "near-misses.jsonl"), near_miss_set(6, 4), strict=True)
    for index, (line, pair) in enumerate(pairs):
        assert line["attribute"] == pair.attribute
        assert line["right"]["sentence"]["text"] == pair.sentence.text
        assert line["other"]["sentence"]["text"] == pair.wrong.text
        for key, fitting, image in (
            ("right", pair.scene, images[10 + 2 * index]),
            ("other", pair.other, images[11 + 2 * index]),
        ):
            assert line[key]["picture"] == f"pictures/{image['filename']}"
            assert [s["raw"] for s in image["sentences"]] == [line[key]["sentence"]["text"]]
            with Image.open(out / line[key]["picture"]) as picture:
                assert np.array_equal(np.asarray(picture), np.asarray(draw(fitting, 64)))
    with Image.open(sheet) as picture:
        assert picture.width > 5 * 192


def test_the_folder_is_read_like_any_other(tmp_path: Path) -> None:
    assert run(f"scenes {tmp_path} --count 10 --near-misses 2".split()) == 0
    collection = read_collection(tmp_path)
    assert collection.splits == {"train": 8, "val": 1, "test": 1, "near-miss": 4}
    assert collection.problems == ()
    for item in collection.items:
        assert item.open is not None
        assert item.open().size == (96, 96)
    assert [s.text for s in collection.items[3].sentences] == [c.text for c in captioned(0, 3).captions]


def test_an_interrupted_run_can_be_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert run(f"scenes {whole} --count 6".split()) == 0
    drawn: list[Scene] = []

    def stops(scene: Scene, size: int) -> Image.Image:
        drawn.append(scene)
        if len(drawn) == 4:
            raise KeyboardInterrupt
        return draw(scene, size)

    monkeypatch.setattr(writing, "draw", stops)
    assert run(f"scenes {broken} --count 6".split()) == 130
    assert not (broken / "captions.json").exists()
    assert len(list((broken / "pictures").iterdir())) == 3
    monkeypatch.setattr(writing, "draw", draw)
    assert run(f"scenes {broken} --count 6".split()) == 0
    assert contents(broken) == contents(whole)
    assert run(f"scenes {broken} --count 6".split()) == 0
    assert contents(broken) == contents(whole)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--count 0", "count: 0 is not possible"),
        (f"--count {'9' * 30}", "expected at most 10,000,000 scenes"),
        (f"--near-misses {'9' * 30}", "expected at most 10,000,000 pairs"),
        ("--size 7", "picture size: 7"),
        ("--splits a,b", "--splits: 'a,b'"),
        ("--splits 0.5,0.1,0.1", "splits: 0.5, 0.1, 0.1 do not fit"),
        ("--near-misses -1", "near misses: -1"),
        ("--sheet sheet.jpg", "expected a name that ends in .png"),
    ],
)
def test_bad_wishes_are_told_and_nothing_is_written(
    arguments: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert run(["scenes", str(out), *arguments.split()]) == 1
    assert message in capsys.readouterr().err
    assert not out.exists()


def test_a_folder_with_other_things_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    assert run(f"scenes {tmp_path} --count 2".split()) == 1
    assert "new or empty" in capsys.readouterr().err
    assert contents(tmp_path) == {"mine.txt": b"mine"}


def test_other_settings_in_the_same_folder_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(f"scenes {tmp_path} --count 2".split()) == 0
    before = contents(tmp_path)
    assert run(f"scenes {tmp_path} --count 2 --seed 1".split()) == 1
    assert "made with count 2, seed 0" in capsys.readouterr().err
    assert contents(tmp_path) == before
