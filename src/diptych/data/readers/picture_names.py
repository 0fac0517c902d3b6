"""Names that mean the same picture: `a/b.jpg`, `b.jpg`, `b`; and a COCO file name and its number."""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePosixPath

from diptych.data.collection import Item
from diptych.data.pictures import SUFFIXES

_NUMBER = re.compile(r"(?:COCO_(?:train|val|test)\d{4}_)?0*(\d+)")
_SPLITS = {
    "train": "train", "training": "train", "trn": "train", "val": "val", "valid": "val", "validation": "val",
    "dev": "val", "test": "test", "testing": "test", "testall": "testall", "restval": "restval",
}  # fmt: skip
_SPLIT = re.compile(r"(?<![a-z])(" + "|".join(sorted(_SPLITS, key=len, reverse=True)) + r")(?![a-z])")
_SPLIT_FOLDER = re.compile(r"(" + "|".join(_SPLITS) + r")[-_]?(?:\d{4})?")
_DROPPED = SUFFIXES | {".npy", ".npz", ".txt", ".json"}


def stem(name: str) -> str:
    """A name without folders and without a picture's or feature file's suffix."""
    base = PurePosixPath(name).name
    suffix = PurePosixPath(base).suffix
    return base[: -len(suffix)] if suffix.lower() in _DROPPED else base


def variants(name: str) -> Iterator[str]:
    """Shorter names of the same picture, the most telling first."""
    path = name.replace("\\", "/")
    suffix = PurePosixPath(path).suffix
    if suffix.lower() in _DROPPED:
        yield path[: -len(suffix)]
    yield PurePosixPath(path).name
    base = stem(path)
    yield base
    number = _NUMBER.fullmatch(base)
    if number:
        yield number.group(1)


class Names:
    """Finds a position by any name of its picture; a short name that fits two pictures fits none.

    each: the names of the picture at every position
    """

    def __init__(self, each: Iterable[Sequence[str]]) -> None:
        self._exact: dict[str, int] = {}
        self._loose: dict[str, int | None] = {}
        for position, names in enumerate(each):
            for name in names:
                self._exact.setdefault(name, position)
                for short in variants(name):
                    if self._loose.setdefault(short, position) != position:
                        self._loose[short] = None

    def find(self, names: Iterable[str]) -> int | None:
        """The position of the first of `names` that is known exactly, else by a shorter name."""
        names = list(names)
        for name in names:
            if name in self._exact:
                return self._exact[name]
        for name in names:
            for short in variants(name):
                position = self._exact.get(short, self._loose.get(short))
                if position is not None:
                    return position
        return None


def item_names(item: Item) -> list[str]:
    """Every name under which other files may know an item."""
    names = [item.id, item.metadata.get("filename"), item.metadata.get("cocoid")]
    return list(dict.fromkeys(name for name in names if name))


def split_name(name: str) -> str:
    """The one word used here for a split: `dev`, `valid` and `validation` are `val`."""
    return _SPLITS.get(name.strip().lower(), name.strip()) or "all"


def split_in(name: str) -> str:
    """The split that a file name speaks of (`captions_val2014.json`, `train-00.tar`), or `all`."""
    match = _SPLIT.search(name.lower())
    return _SPLITS[match.group(1)] if match else "all"


def folder_split(folder: str) -> str:
    """The split that the last of a path's folders with such a name stands for (`train/`, `val2014/`), or `all`."""
    for part in reversed(PurePosixPath(folder.replace("\\", "/")).parts):
        match = _SPLIT_FOLDER.fullmatch(part.lower())
        if match:
            return _SPLITS[match.group(1)]
    return "all"
