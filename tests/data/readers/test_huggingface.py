"""Hugging Face datasets from disk: columns, splits, one caption or several a row."""

from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest

from diptych.common.errors import DiptychError
from diptych.data.read import read_collection
from tests.data.making import CAPTIONS, picture, texts
from tests.data.readers.test_captions import says


def table(columns: dict[str, list[Any]]) -> datasets.Dataset:
    return datasets.Dataset.from_dict(columns).cast_column("image", datasets.Image())


def pictures(count: int = 3) -> list[Any]:
    return [picture(i) for i in range(count)]


def test_lists_of_captions_and_splits(tmp_path: Path) -> None:
    whole = table({"image": pictures(), "caption": list(CAPTIONS.values()), "filename": ["a.jpg", "b.jpg", "c.jpg"]})
    parts = {"train": whole.select([0, 1]), "validation": whole.select([2])}
    datasets.DatasetDict(parts).save_to_disk(str(tmp_path / "tiny"))
    collection = read_collection(tmp_path / "tiny")
    assert collection.name == "tiny"
    assert collection.format == "Hugging Face dataset"
    assert collection.splits == {"train": 2, "val": 1}
    assert {item.id: texts(item) for item in collection.items} == CAPTIONS
    last = collection.items[2]
    assert last.open is not None
    assert np.array_equal(np.asarray(last.open()), np.asarray(picture(2)))


def test_one_caption_a_row_is_joined_by_id(tmp_path: Path) -> None:
    rows = [(name, text) for name, several in CAPTIONS.items() for text in several]
    numbered = {name: i for i, name in enumerate(CAPTIONS)}
    table(
        {
            "image": [picture(numbered[name]) for name, _ in rows],
            "sentences": [{"raw": text, "sentid": 50 + i} for i, (_, text) in enumerate(rows)],
            "cocoid": [numbered[name] + 7 for name, _ in rows],
            "split": ["restval", "restval", "val", "val", "test", "test"],
        }
    ).save_to_disk(str(tmp_path / "d"))
    collection = read_collection(tmp_path / "d")
    assert [item.id for item in collection.items] == ["7", "8", "9"]
    assert [texts(item) for item in collection.items] == list(CAPTIONS.values())
    assert [s.id for s in collection.items[1].sentences] == ["52", "53"]
    assert collection.splits == {"train": 1, "val": 1, "test": 1}
    assert collection.items[0].metadata["source_split"] == "restval"


def test_numbered_caption_columns_and_no_id(tmp_path: Path) -> None:
    first, second = ([several[j] for several in CAPTIONS.values()] for j in (0, 1))
    table({"image": pictures(), "caption_0": first, "caption_1": second}).save_to_disk(str(tmp_path / "d"))
    collection = read_collection(tmp_path / "d")
    assert [item.id for item in collection.items] == ["0", "1", "2"]
    assert [texts(item) for item in collection.items] == list(CAPTIONS.values())


def test_bad_rows(tmp_path: Path) -> None:
    path = tmp_path / "d"
    table({"image": [picture(), None, picture()], "caption": ["one", "two", " "]}).save_to_disk(str(path))
    says(path, "PATH: row 1: image: no picture in it")
    kept = read_collection(path, skip_bad=True)
    assert [item.id for item in kept.items] == ["0"]
    assert "PATH: row 2: caption: the caption is empty".replace("PATH", str(path)) in map(str, kept.problems)


def test_no_picture_column(tmp_path: Path) -> None:
    datasets.Dataset.from_dict({"caption": ["one"]}).save_to_disk(str(tmp_path / "d"))
    with pytest.raises(DiptychError, match="columns caption; expected one with pictures, 'image'"):
        read_collection(tmp_path / "d")


def test_a_name_that_the_hub_does_not_give(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "load_dataset", lambda name: (_ for _ in ()).throw(ConnectionError("no network")))
    with pytest.raises(DiptychError, match=r"owner/name: not a folder that can be read, nor a .*: no network"):
        read_collection("owner/name")


def test_a_name_that_the_hub_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = table({"image": pictures(), "caption": list(CAPTIONS.values())})
    monkeypatch.setattr(datasets, "load_dataset", lambda name: datasets.DatasetDict({"test": whole}))
    collection = read_collection("owner/name")
    assert collection.splits == {"test": 3}
    assert collection.items[0].id == "test/0"
