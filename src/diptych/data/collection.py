"""Pictures with their sentences: the one type that every reader returns."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import numpy as np
from PIL import Image

from diptych.common.errors import DiptychError
from diptych.data.pictures import PictureFile

Open = Callable[[], Image.Image]


@dataclass(frozen=True)
class Sentence:
    """One caption: its text, and its id in the source (a COCO annotation id, say)."""

    text: str
    id: str


@dataclass(frozen=True)
class Item:
    """One picture with its sentences.

    `open` decodes the picture when it is wanted (`None` where only features are at hand); `path` says where it is
    for people; `row` is its row in the collection's features.
    """

    id: str
    sentences: tuple[Sentence, ...]
    split: str = "all"
    open: Open | None = None
    path: str | None = None
    row: int | None = None
    metadata: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Regions:
    """The local features of one picture: vectors (regions, f), boxes (regions, 4) as x0 y0 x1 y1 in pixels or None."""

    vectors: np.ndarray
    boxes: np.ndarray | None = None
    size: tuple[int, int] | None = None  # width, height of the picture that the boxes refer to
    scores: np.ndarray | None = None  # (regions,) how sure the detector was


class Features(Protocol):
    """Local features of many pictures, read a row at a time (memory-mapped where the format allows it)."""

    @property
    def dim(self) -> int:
        """Length of one local vector."""

    def __len__(self) -> int: ...

    def __getitem__(self, row: int) -> Regions: ...


@dataclass(frozen=True)
class DataProblem:
    """Something wrong in the data: where it is, and what was found and expected."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


@dataclass(frozen=True)
class Collection:
    """Pictures with their sentences, and their local features where there are any."""

    name: str
    items: Sequence[Item]
    features: Features | None = None
    problems: tuple[DataProblem, ...] = ()
    format: str = ""  # the kind of source that it was read from, for people

    def __len__(self) -> int:
        return len(self.items)

    def split(self, *names: str) -> "Collection":
        """The items of the named splits, in order."""
        return replace(self, items=[item for item in self.items if item.split in names])

    def first(self, count: int) -> "Collection":
        """The first `count` items."""
        return replace(self, items=list(self.items[:count]))

    def with_features(self, features: Features, rows: dict[str, int]) -> "Collection":
        """The same pictures with local features, `rows` giving each item's row by its id."""
        missing = next((item.id for item in self.items if item.id not in rows), None)
        if missing is not None:
            raise DiptychError(f"the features have no row for the picture {missing!r}", where=self.name)
        return replace(self, features=features, items=[replace(item, row=rows[item.id]) for item in self.items])

    @property
    def splits(self) -> dict[str, int]:
        """How many pictures each split has."""
        counts: dict[str, int] = {}
        for item in self.items:
            counts[item.split] = counts.get(item.split, 0) + 1
        return counts

    def captions(self) -> tuple[list[str], np.ndarray]:
        """All sentences in order, and for each the position of its picture: (sentences,) int64."""
        texts = [s.text for item in self.items for s in item.sentences]
        counts = np.array([len(item.sentences) for item in self.items], dtype=np.int64)
        return texts, np.repeat(np.arange(len(self.items), dtype=np.int64), counts)


def open_path(path: Path) -> Open:
    """A function that decodes the picture at `path` to upright RGB when called."""
    return PictureFile(path)


def sentences(texts: Iterable[str], prefix: str) -> tuple[Sentence, ...]:
    """Sentences with ids made from `prefix` and their position, for sources that give none."""
    return tuple(Sentence(text, f"{prefix}#{i}") for i, text in enumerate(texts))
