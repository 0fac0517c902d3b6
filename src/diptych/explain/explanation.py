"""What an explanation holds: arrays with names, over the words of the sentence and the regions of the picture."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from diptych.data.open_picture import Picture


@dataclass(frozen=True, eq=False)
class ShownArray:
    """One array of an explanation, float32, and what each of its dimensions runs over."""

    values: np.ndarray
    axes: tuple[str, ...]


@dataclass(frozen=True)
class Explanation:
    """Why one picture and one sentence have their score.

    kind: the matcher's; title: its name for people; words: as people write them, the special tokens left out
    size: width and height that the boxes refer to; boxes: (regions, 4), x0 y0 x1 y1
    grid: rows and columns, where the first regions are the cells of the picture in reading order
    shown: what there is to see, by name; whatever a matcher shows is here, over `words`, `regions`, `slots` or
        `iterations`. Names that several matchers share:
        word_to_region, region_to_word, region_to_region: attention; what is missing to a row's 1 goes to tokens that
            are not shown or, in MMCA, to the row's own side
        word_gates, region_gates: how much of its message each lets in; word_weights, region_weights: the weights of
            the aggregation
        word_fit, region_fit: the cosine of each with what it attends to, or with the whole of the other side
        word_share, region_share: the part of the pooled vector that each supplies
        slot_to_region, slot_to_word: (iterations, slots, ...), what each slot holds; slot_similarity: cosines
        Of any matcher, with one word or region left out at a time: word_drop, region_drop: by how much the score
            falls without it; together: (words, regions), how much more it falls without the one while the other is
            there, s - s(without w) - s(without r) + s(without both)
    prefers: names of what tells best where the words look, the best first
    nearest: for each slot of the picture the nearest of the given sentences with their cosines, best first
    picture: what opens the picture, where one was given; a notebook draws on it

    >>> told = explain(matcher, "dog.png", "a red dog")
    >>> told.title, told.regions, told.grid
    ('VSE', 16, (4, 4))
    """

    kind: str
    title: str
    sentence: str
    words: tuple[str, ...]
    score: float
    regions: int
    boxes: np.ndarray | None = None
    size: tuple[int, int] | None = None
    grid: tuple[int, int] | None = None
    shown: dict[str, ShownArray] = field(default_factory=dict)
    prefers: tuple[str, ...] = ("word_to_region", "region_to_word", "together")
    nearest: tuple[tuple[tuple[str, float], ...], ...] = ()
    picture: Picture | None = field(default=None, repr=False, compare=False)

    def _repr_html_(self) -> str:
        from diptych.explain.notebook import explanation_html

        return explanation_html(self)

    def arrays(self) -> dict[str, np.ndarray]:
        """All arrays by name.

        >>> told.arrays()["word_drop"].shape
        (3,)
        """
        return {name: one.values for name, one in self.shown.items()}

    def array(self, name: str) -> np.ndarray | None:
        """One array; None where the matcher does not show it.

        >>> told.array("word_gates") is None  # CAMP alone has gates
        True
        """
        one = self.shown.get(name)
        return None if one is None else one.values

    def looks(self) -> tuple[str, np.ndarray] | None:
        """Where each word looks, and the array that says so: (words, regions), 0 or more.

        The words' own attention; else how much of the regions' attention each word draws; else what the two do
        together: in the order that the matcher prefers.

        >>> name, maps = told.looks()
        >>> name, maps.shape
        ('together', (3, 16))
        """
        for name in self.prefers:
            array = self.array(name)
            if array is not None:
                return name, array.T if self.shown[name].axes[0] == "regions" else array.clip(min=0)
        return None

    def answers(self) -> tuple[str, np.ndarray] | None:
        """Which words each region has to do with, and the array that says so: (regions, words), 0 or more.

        >>> told.answers()[1].shape
        (16, 3)
        """
        attention = self.array("region_to_word")
        if attention is not None and self.prefers[0] != "together":
            return "region_to_word", attention
        looks = self.looks()
        return None if looks is None else (looks[0], looks[1].T)

    def whole(self) -> tuple[str, np.ndarray] | None:
        """What of the picture the whole sentence is about: (regions,), 0 or more.

        What the score would miss; else what won the pooling, which is the same for any sentence; else the last
        iteration's slots, all together; else the mean over words of `looks`.

        >>> name, map = told.whole()
        >>> name, map.shape
        ('region_drop', (16,))
        """
        drop, share, slots = (self.array(name) for name in ("region_drop", "region_share", "slot_to_region"))
        looks = self.looks()
        if drop is not None and (drop > 0).any():
            return "region_drop", drop.clip(min=0)
        if share is not None:
            return "region_share", share
        if slots is not None:
            return "slot_to_region", slots[-1].mean(0)
        return None if looks is None or not self.words else (looks[0], looks[1].mean(0))

    def strength(self) -> tuple[str, np.ndarray] | None:
        """What the words are shaded by: (words,). Gates; else SCAN's cosines; else the score's drop; else shares.

        >>> told.strength()[0]
        'word_drop'
        """
        for name in ("word_gates", "word_fit", "word_drop", "word_share"):
            array = self.array(name)
            if array is not None:
                return name, array
        return None

    def to_json(self) -> dict[str, Any]:
        """Everything, for a JSON file: each array with its axes, shape and values.

        >>> told.to_json()["arrays"]["together"]["axes"]
        ['words', 'regions']
        """
        return {
            "model": self.kind,
            "title": self.title,
            "sentence": self.sentence,
            "words": list(self.words),
            "score": self.score,
            "regions": self.regions,
            "size": None if self.size is None else list(self.size),
            "grid": None if self.grid is None else list(self.grid),
            "boxes": None if self.boxes is None else _rounded(self.boxes),
            "arrays": {
                name: {"axes": list(one.axes), "shape": list(one.values.shape), "values": _rounded(one.values)}
                for name, one in self.shown.items()
            },
            "nearest": [[{"sentence": s, "cosine": c} for s, c in slot] for slot in self.nearest],
        }


def _rounded(array: np.ndarray) -> list[Any]:
    """Nested lists of the shortest decimals that a float32 needs."""
    return np.vectorize(lambda x: float(f"{x:.7g}"), otypes=[object])(array).tolist() if array.size else []
