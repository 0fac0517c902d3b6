"""webdataset tars: random access, streaming, splits from names, and what can be wrong."""

import pickle
import random
from pathlib import Path

import numpy as np
import pytest

from diptych.common.errors import DiptychError
from diptych.data.read import read_collection
from diptych.data.readers.faults import Faults
from diptych.data.readers.webdataset import stream_webdataset
from tests.data.making import CAPTIONS, karpathy, picture_bytes, sample, texts, write_json, write_tar
from tests.data.readers.test_captions import says


def write_shards(folder: Path) -> Path:
    write_tar(folder / "train-00.tar", {**sample("a", CAPTIONS["a"], 1)})
    write_tar(folder / "train-01.tar", {**sample("b", CAPTIONS["b"], 2)})
    write_tar(folder / "val.tar", {**sample("c", CAPTIONS["c"], 3)})
    return folder


def test_a_folder_of_tars(tmp_path: Path) -> None:
    collection = read_collection(write_shards(tmp_path / "shards"))
    assert collection.name == "shards"
    assert collection.format == "webdataset"
    assert collection.splits == {"train": 2, "val": 1}
    assert {item.id: texts(item) for item in collection.items} == CAPTIONS
    assert collection.items[1].path == f"{tmp_path / 'shards' / 'train-01.tar'}: b.jpg"


def test_tars_in_folders_that_are_splits(tmp_path: Path) -> None:
    write_tar(tmp_path / "train" / "00000.tar", sample("a", ["one"]))
    write_tar(tmp_path / "test" / "00000.tar", sample("b", ["two"]))
    assert read_collection(tmp_path).splits == {"test": 1, "train": 1}


def test_any_picture_is_read_from_its_own_place(tmp_path: Path) -> None:
    members: dict[str, bytes] = {}
    for i in range(20):
        members |= sample(f"{i:03d}", [f"caption {i}"], i)
    collection = pickle.loads(pickle.dumps(read_collection(write_tar(tmp_path / "x.tar", members))))
    order = list(range(20))
    random.Random(0).shuffle(order)
    from io import BytesIO

    from PIL import Image

    for i in order:
        item = collection.items[i]
        assert texts(item) == [f"caption {i}"]
        assert item.open is not None
        assert np.array_equal(np.asarray(item.open()), np.asarray(Image.open(BytesIO(picture_bytes(i)))))


@pytest.mark.parametrize("name", ["x.tar", "x.tar.gz"])
def test_streaming_gives_the_same(tmp_path: Path, name: str) -> None:
    members = {**sample("a", CAPTIONS["a"], 1), **sample("b", CAPTIONS["b"], 2)}
    whole = read_collection(write_tar(tmp_path / "whole.tar", members))
    streamed = list(stream_webdataset([write_tar(tmp_path / name, members)]))
    assert [(i.id, i.sentences, i.split) for i in streamed] == [(i.id, i.sentences, i.split) for i in whole.items]
    for one, other in zip(streamed, whole.items, strict=True):
        assert one.open is not None
        assert other.open is not None
        assert np.array_equal(np.asarray(one.open()), np.asarray(other.open()))


def test_streaming_can_go_on_after_a_bad_sample(tmp_path: Path) -> None:
    members = {**sample("a", CAPTIONS["a"]), "b.jpg": picture_bytes(), "b.json": b"{", **sample("c", CAPTIONS["c"])}
    path = write_tar(tmp_path / "x.tar", {**members, "c.npy": bytes(100)})
    with pytest.raises(DiptychError, match=r"x\.tar: b\.json: line 1"):
        list(stream_webdataset([path]))
    faults = Faults(go_on=True)
    assert [item.id for item in stream_webdataset([path], faults)] == ["a", "c"]
    assert len(faults.problems) == 1


def test_compressed_tars_can_only_be_streamed(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "x.tar.gz", sample("a", ["one"]))
    with pytest.raises(DiptychError, match=r"x\.tar\.gz: a compressed tar cannot be read at random"):
        read_collection(path)


def test_what_img2dataset_writes(tmp_path: Path) -> None:
    members = {
        "000000000.jpg": picture_bytes(),
        "000000000.txt": b"a boat  on\nthe sea",
        "000000000.json": b'{"caption": "a boat on the sea", "url": "http://x", "width": 12, "status": "success"}',
        "000000001.txt": b"a dog",
        "000000001.jpg": picture_bytes(1),
        "000000001.json": b'{"caption": null, "key": "000000001"}',
    }
    collection = read_collection(write_tar(tmp_path / "00000.tar", members))
    assert collection.splits == {"all": 2}
    assert [texts(item) for item in collection.items] == [["a boat on the sea"], ["a dog"]]


def test_long_names_and_folders_inside(tmp_path: Path) -> None:
    key = "deep/" * 40 + "picture"
    collection = read_collection(write_tar(tmp_path / "x.tar", sample(key, ["one"])))
    assert collection.items[0].id == key
    assert collection.items[0].open is not None
    assert collection.items[0].open().size == (12, 8)


def test_a_split_in_the_sample_wins(tmp_path: Path) -> None:
    members = {"a.jpg": picture_bytes(), "a.json": b'{"caption": "one", "split": "restval"}'}
    item = read_collection(write_tar(tmp_path / "test.tar", members)).items[0]
    assert item.split == "train"
    assert item.metadata["source_split"] == "restval"


def test_pictures_without_any_captions_are_fine(tmp_path: Path) -> None:
    collection = read_collection(write_tar(tmp_path / "x.tar", {"a.jpg": picture_bytes()}))
    assert collection.items[0].sentences == ()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"b.json": b'{"captions": [\n"one",]}'}, "PATH: b.json: line 2, column"),
        ({"b.json": b'["one"]'}, "PATH: b.json: expected an object with 'captions' or 'caption', got list"),
        ({"b.json": b'{"captions": ["one", ""]}'}, "PATH: b.json: the caption is empty"),
        ({"b.json": b'{"captions": [7]}'}, "PATH: b.json: expected a caption, got 7"),
        ({"b.json": b"{}"}, "PATH: b: the picture 'b' has no captions"),
        ({"b.jpg": None}, "PATH: b: no picture with this key; expected KEY.jpg or its like"),
        (
            {"b.txt": b"other words"},
            "PATH: b: two captions files disagree: 'other words' in .txt, 'Two dogs run.' in .json",
        ),
    ],
)
def test_bad_samples(tmp_path: Path, changes: dict[str, bytes | None], sentence: str) -> None:
    members: dict[str, bytes | None] = {**sample("b", CAPTIONS["b"]), **changes, **sample("c", CAPTIONS["c"])}
    members = {**sample("a", CAPTIONS["a"]), **members}
    path = write_tar(tmp_path / "x.tar", {name: data for name, data in members.items() if data is not None})
    with pytest.raises(DiptychError) as error:
        read_collection(path)
    assert str(error.value).startswith(sentence.replace("PATH", str(path)))
    kept = read_collection(path, skip_bad=True)
    assert str(kept.problems[0]).startswith(sentence.replace("PATH", str(path)))
    assert {"a", "c"} <= {item.id for item in kept.items}


def test_a_key_in_two_splits(tmp_path: Path) -> None:
    one = write_tar(tmp_path / "train.tar", sample("a", ["one"]))
    two = write_tar(tmp_path / "val.tar", sample("a", ["one"]))
    says(tmp_path, f"{two}: a: the id 'a' is in two splits: 'val' here, 'train' at {one}: a")


def test_a_truncated_tar(tmp_path: Path) -> None:
    folder = write_shards(tmp_path)
    path = folder / "train-01.tar"
    path.write_bytes(path.read_bytes()[:700])
    with pytest.raises(DiptychError, match=r"train-01\.tar: "):
        read_collection(folder)
    kept = read_collection(folder, skip_bad=True)
    assert [item.id for item in kept.items] == ["a", "c"]
    assert kept.problems[0].where == str(path)
    path.write_bytes(b"no tar at all")
    with pytest.raises(DiptychError, match=r"train-01\.tar: not a whole tar"):
        read_collection(folder)


def test_tars_with_karpathys_json_beside_them(tmp_path: Path) -> None:
    folder = write_shards(tmp_path)
    splits = {"a": "train", "b": "train", "c": "val"}
    path = write_json(folder / "dataset.json", karpathy(splits=splits))
    collection = read_collection(folder)
    assert [s.id for s in collection.items[1].sentences] == ["102", "103"]
    assert all(item.open is not None for item in collection.items)
    write_json(path, karpathy({**CAPTIONS, "c": ["Something else."]}, splits))
    with pytest.raises(DiptychError, match=r"picture 'c': .*dataset\.json and .* disagree on its captions"):
        read_collection(folder)
    write_json(path, karpathy({"a": CAPTIONS["a"], "b": CAPTIONS["b"]}, splits))
    says(folder, f"PATH: the picture {folder / 'val.tar'}: c.jpg has no captions in {path}")


def test_karpathys_json_with_pictures_from_tars(tmp_path: Path) -> None:
    path = write_json(tmp_path / "k" / "dataset.json", karpathy(splits={"a": "train", "b": "train", "c": "val"}))
    collection = read_collection(path, images=write_shards(tmp_path / "shards"), split="val")
    assert [item.id for item in collection.items] == ["c"]
    assert collection.items[0].open is not None
    assert collection.items[0].open().size == (12, 8)
