import json
from pathlib import Path

import pytest

from diptych.common.config import parse, to_tree
from diptych.common.errors import DiptychError
from diptych.training.data import FilesConfig, load_splits
from tests.data.making import picture


def write_set(folder: Path, splits: dict[str, str], size: tuple[int, int] = (12, 8)) -> str:
    folder.mkdir(parents=True)
    images = []
    for i, (name, split) in enumerate(splits.items()):
        picture(i, size).save(folder / f"{name}.png")
        texts = [{"raw": f"{folder.name} {name} {k}", "sentid": 2 * i + k} for k in range(2)]
        images.append({"filename": f"{name}.png", "imgid": i, "split": split, "sentences": texts})
    (folder / "dataset.json").write_text(json.dumps({"images": images}))
    return str(folder)


def test_several_paths_are_trained_on_together_and_validated_one_by_one(tmp_path: Path) -> None:
    first = write_set(tmp_path / "one", {"a": "train", "b": "val", "c": "test"})
    second = write_set(tmp_path / "two", {"a": "train", "d": "train", "e": "val"})
    splits = load_splits(FilesConfig((first, second)))
    assert [item.id for item in splits.train.items] == ["one/a", "two/a", "d"]
    assert [(part.name, len(part)) for part in splits.validations] == [("one", 1), ("two", 1)]
    assert [item.id for item in splits.validation.items] == ["b", "e"]
    assert [item.id for item in splits.test.items] == ["c"]


def test_a_path_without_a_validation_split_is_only_trained_on(tmp_path: Path) -> None:
    first = write_set(tmp_path / "one", {"a": "train", "b": "val"})
    more = write_set(tmp_path / "more", {"x": "train"})
    splits = load_splits(FilesConfig((more, first)))
    assert [item.id for item in splits.train.items] == ["x", "a"]
    assert [part.name for part in splits.validations] == ["one"]


def test_no_validation_split_at_all_is_an_error(tmp_path: Path) -> None:
    paths = (write_set(tmp_path / "one", {"a": "train"}), write_set(tmp_path / "two", {"b": "train"}))
    with pytest.raises(DiptychError, match=r"one, .*two: data\.validation: no pictures in split 'val'"):
        load_splits(FilesConfig(paths))


def test_the_limit_holds_for_each_set(tmp_path: Path) -> None:
    names = {"a": "train", "b": "val", "c": "val"}
    paths = (write_set(tmp_path / "one", names), write_set(tmp_path / "two", names))
    assert [len(part) for part in load_splits(FilesConfig(paths, validation_limit=1)).validations] == [1, 1]


def test_a_path_is_a_string_or_a_list() -> None:
    plain = parse(FilesConfig, {"path": "data/coco"}, "recipe.json")
    assert (plain.path, plain.paths) == ("data/coco", ("data/coco",))
    several = parse(FilesConfig, {"path": ["data/coco", "data/flickr8k"]}, "recipe.json")
    assert several.paths == ("data/coco", "data/flickr8k")
    assert parse(FilesConfig, to_tree(several), "recipe.json") == several
    with pytest.raises(DiptychError, match="path"):
        parse(FilesConfig, {"path": []}, "recipe.json")


@pytest.mark.parametrize("key", ["features", "images"])
def test_what_belongs_to_one_path_is_refused_beside_several(key: str) -> None:
    with pytest.raises(DiptychError, match=f"{key}: is for one path, and there are 2"):
        parse(FilesConfig, {"path": ["a", "b"], key: "c"}, "recipe.json")
