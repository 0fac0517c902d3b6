"""The deep check and the summary."""

from pathlib import Path

import numpy as np
import pytest

from diptych.common.errors import DiptychError
from diptych.data.check import Checked, check, spread
from diptych.data.collection import Collection, Item, Regions, sentences
from diptych.data.read import read_collection
from diptych.data.readers.faults import Faults
from diptych.data.summary import Spread, summarise
from tests.data.making import (
    boxes,
    features,
    karpathy,
    picture_bytes,
    write_feature_file,
    write_json,
    write_pictures,
    write_precomp,
    write_tsv,
)


def test_unreadable_pictures_are_found(tmp_path: Path) -> None:
    path = write_json(tmp_path / "dataset.json", karpathy())
    write_pictures(tmp_path)
    (tmp_path / "b.jpg").write_bytes(picture_bytes(0, (99, 99))[:700])
    assert len(read_collection(path)) == 3
    with pytest.raises(DiptychError, match=r"b\.jpg: the picture cannot be decoded"):
        read_collection(path, deep=True)
    kept = read_collection(path, deep=True, skip_bad=True)
    assert [item.id for item in kept.items] == ["a", "c"]
    assert kept.problems[0].where == str(tmp_path / "b.jpg")


@pytest.mark.parametrize(("value", "word"), [(np.nan, "NaN"), (np.inf, "infinity")])
def test_features_that_are_not_finite(tmp_path: Path, value: float, word: str) -> None:
    folder = write_precomp(tmp_path, {"train": 3, "dev": 2})
    array = np.load(folder / "dev_ims.npy")
    array[5:10, 2, 3] = value
    np.save(folder / "dev_ims.npy", array)
    with pytest.raises(DiptychError) as error:
        read_collection(folder, deep=True)
    assert str(error.value) == (
        f"{folder / 'dev_ims.npy'}: row 5 (picture '1004'): {word} in region 2 at position 3, 1 such in all"
    )
    assert read_collection(folder, deep=True, skip_bad=True).splits == {"train": 3, "val": 1}


class Given:
    """Features as they are given."""

    dim = 6

    def __init__(self, rows: list[Regions]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: int) -> Regions:
        return self.rows[row]


@pytest.mark.parametrize(
    ("regions", "what"),
    [
        (Regions(features(dim=5)[0]), "vectors of dimension 5; expected 6"),
        (Regions(features()[0][:0]), "shape (0, 6); expected (regions, 6) with at least one region"),
        (Regions(features()[0], boxes()[0][:2]), "boxes of shape (2, 4); expected (4, 4)"),
        (Regions(features()[0], boxes()[0] * np.nan), "a box is not finite"),
        (
            Regions(features()[0][:1], np.array([[5, 5, 4, 9]])),
            "box 0 is [5, 5, 4, 9]; expected x0 y0 x1 y1 with x0 <= x1, y0 <= y1",
        ),
    ],
)
def test_bad_regions(regions: Regions, what: str) -> None:
    items = [Item("good", (), row=0), Item("bad", (), row=1), Item("twin", (), row=1), Item("far", (), row=2)]
    faults = Faults(go_on=True)
    checked = check(Collection("x", items, Given([Regions(features()[0]), regions])), faults)
    assert [item.id for item in checked.good] == ["good"]
    assert {problem.what for problem in faults.problems} == {what, "no such row; there are 2"}
    assert "features: row 1 (picture " in str(faults.problems[0])


def test_a_sample_is_spread_evenly() -> None:
    items = [Item(str(i), ()) for i in range(9)]
    assert [item.id for item in spread(items, 3)] == ["0", "4", "8"]
    assert [item.id for item in spread(items, 1)] == ["0"]
    assert spread(items, 0) == []
    assert spread(items, 20) == items
    assert spread(items, None) == items


def test_a_sample_leaves_the_rest_in(tmp_path: Path) -> None:
    write_pictures(tmp_path)
    (tmp_path / "b.jpg").write_text("broken")
    faults = Faults(go_on=True)
    checked = check(read_collection(tmp_path), faults, 2)
    assert len(checked.good) == 3
    assert len(checked.sizes) == 2
    assert faults.problems == []


def test_summary(tmp_path: Path) -> None:
    data = karpathy()
    data["images"][0]["split"] = "restval"
    write_pictures(tmp_path)
    collection = read_collection(
        write_json(tmp_path / "dataset.json", data), features=write_tsv(tmp_path / "features.tsv")
    )
    summary = summarise(collection, check(collection, Faults()))
    assert (summary.pictures, summary.captions) == (3, 6)
    assert summary.captions_per_picture == {2: 3}
    assert {name: (s.pictures, s.captions) for name, s in summary.splits.items()} == {
        "train": (1, 2), "val": (1, 2), "test": (1, 2),
    }  # fmt: skip
    assert summary.words_per_caption == Spread(3, 3.0, 3.5, 5)
    assert summary.restval == 1
    assert summary.picture_files.width == Spread(12, 12.0, 12.0, 12)
    assert summary.features is not None
    assert (summary.features.rows, summary.features.dim, summary.features.with_boxes) == (3, 6, 3)
    assert summary.features.regions == Spread(4, 4.0, 4.0, 4)
    assert [example.id for example in summary.examples] == ["a", "b", "c"]


def test_summary_of_nothing() -> None:
    summary = summarise(Collection("x", []), Checked([]))
    assert summary.words_per_caption is None
    assert summary.examples == []


def test_summary_of_captions_that_differ_in_number() -> None:
    items = [Item(str(i), sentences(["a b"] * n, str(i))) for i, n in enumerate([1, 2, 2])]
    assert summarise(Collection("x", items), Checked(items)).captions_per_picture == {1: 1, 2: 2}


def test_a_damaged_feature_file(tmp_path: Path) -> None:
    path = write_feature_file(tmp_path / "features.bin", ["a", "b", "c"])
    assert len(read_collection(path, deep=True)) == 3
    content = bytearray(path.read_bytes())
    content[64 + 100] ^= 1
    path.write_bytes(content)
    assert len(read_collection(path)) == 3
    with pytest.raises(DiptychError, match=r"features\.bin: damaged: the features of 'b' have a wrong checksum"):
        read_collection(path, deep=True)
