"""The one type that every reader returns."""

import pickle
from pathlib import Path

import numpy as np
import pytest

from diptych.common.errors import DiptychError
from diptych.data.collection import Collection, DataProblem, Item, Regions, open_path, sentences
from tests.data.making import picture


class Rows:
    dim = 2

    def __len__(self) -> int:
        return 3

    def __getitem__(self, row: int) -> Regions:
        return Regions(np.full((1, 2), row, np.float32))


def collection() -> Collection:
    items = [
        Item("a", sentences(["one", "two"], "a"), "train"),
        Item("b", (), "train"),
        Item("c", sentences(["three"], "c"), "val"),
    ]
    return Collection("tiny", items)


def test_splits() -> None:
    assert collection().splits == {"train": 2, "val": 1}
    assert [item.id for item in collection().split("val", "train").items] == ["a", "b", "c"]
    assert [item.id for item in collection().split("val").items] == ["c"]
    assert len(collection().split("test")) == 0
    assert [item.id for item in collection().first(2).items] == ["a", "b"]


def test_captions_know_their_pictures() -> None:
    texts, owners = collection().captions()
    assert texts == ["one", "two", "three"]
    assert owners.tolist() == [0, 0, 2]
    assert owners.dtype == np.int64
    texts, owners = Collection("none", []).captions()
    assert texts == []
    assert owners.shape == (0,)
    assert owners.dtype == np.int64


def test_sentences_get_ids_from_their_position() -> None:
    assert [s.id for s in sentences(["x", "y"], "pic")] == ["pic#0", "pic#1"]


def test_features_by_id() -> None:
    joined = collection().with_features(Rows(), {"a": 2, "b": 0, "c": 1})
    assert [item.row for item in joined.items] == [2, 0, 1]
    with pytest.raises(DiptychError, match="tiny: the features have no row for the picture 'b'"):
        collection().with_features(Rows(), {"a": 2, "c": 1})


def test_a_problem_reads_as_a_sentence() -> None:
    assert str(DataProblem("x.json: line 3", "broken")) == "x.json: line 3: broken"


def test_pictures_open_in_another_process(tmp_path: Path) -> None:
    picture().save(tmp_path / "a.png")
    opened = pickle.loads(pickle.dumps(open_path(tmp_path / "a.png")))()
    assert np.array_equal(np.asarray(opened), np.asarray(picture()))
