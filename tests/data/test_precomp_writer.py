from pathlib import Path

import numpy as np
import pytest

from diptych.common.errors import DiptychError
from diptych.data.collection import Item, Regions, sentences
from diptych.data.feature_file import FeatureFile, FeatureSource
from diptych.data.feature_writer import FeatureWriter
from diptych.data.precomp_writer import write_precomp
from diptych.data.read import read_collection

SAID = {
    "b": ["A dog.", "Two\u2028dogs,\nplaying.", "dogs"],
    "a": ["A cat.", "A grey cat."],
    "c": ["A boat.", "A red boat.", "boats"],
    "d": ["A house.", "Houses."],
}
SPLITS = {"b": "train", "a": "train", "c": "val", "d": "test"}


def file_of(path: Path, regions: dict[str, int], boxes: bool = True) -> FeatureFile:
    rng = np.random.default_rng(0)
    source = FeatureSource("toy", 32, 5, "single", None if boxes else (1, 3))
    writer = FeatureWriter(path, source)
    for id, count in regions.items():
        where = np.sort(rng.uniform(0, 30, (count, 2, 2)), axis=1).reshape(count, 4).astype(np.float32)
        writer.add(id, Regions(rng.normal(size=(count, 5)).astype(np.float32), where, (40, 30)))
    return writer.finish()


def items(split: dict[str, str] = SPLITS) -> list[Item]:
    return [Item(id, sentences(texts, id), split.get(id, "all")) for id, texts in SAID.items()]


def test_what_is_written_is_read_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = file_of(tmp_path / "f", dict.fromkeys("dcba", 3))  # in another order than the items
    told = write_precomp(tmp_path / "own_precomp", items(), file)
    assert told == {"train": (2, 4), "dev": (1, 3), "test": (1, 2)}
    assert (
        "train: 1 of 2 pictures have more than the 2 sentences of 'a'; the first 2 of each" in capsys.readouterr().err
    )
    assert np.load(tmp_path / "own_precomp" / "train_ims.npy").dtype == np.float32
    back = read_collection(tmp_path / "own_precomp", deep=True)
    assert [item.id for item in back.items] == ["b", "a", "c", "d"]
    assert [item.split for item in back.items] == ["train", "train", "val", "test"]
    assert [s.text for s in back.items[0].sentences] == ["A dog.", "Two dogs, playing."]
    assert [s.text for s in back.items[2].sentences] == SAID["c"]
    assert back.features is not None
    for item in back.items:
        assert item.row is not None
        regions, given = back.features[item.row], file[file.rows[item.id]]
        assert np.array_equal(regions.vectors, given.vectors)
        assert np.array_equal(regions.boxes, given.boxes)  # type: ignore[arg-type]
        assert regions.size == (40, 30)


def test_pictures_that_the_file_does_not_have_are_left_out(tmp_path: Path) -> None:
    told = write_precomp(tmp_path / "out", items(), file_of(tmp_path / "f", dict.fromkeys("bc", 3)))
    assert told == {"train": (1, 3), "dev": (1, 3)}


def test_what_does_not_fit_the_layout_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(DiptychError, match="pictures have 2 to 3 regions; a precomp folder takes equally many"):
        write_precomp(tmp_path / "out", items(), file_of(tmp_path / "f", {"a": 3, "b": 2}))
    silent = [*items(), Item("e", (), "train")]
    with pytest.raises(DiptychError, match="the picture 'e' has no sentence"):
        write_precomp(tmp_path / "out", silent, file_of(tmp_path / "g", dict.fromkeys("abe", 3)))
    (tmp_path / "out").mkdir()
    with pytest.raises(DiptychError, match="already there"):
        write_precomp(tmp_path / "out", items(), file_of(tmp_path / "h", {"a": 3}))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["f", "g", "h", "out"]
