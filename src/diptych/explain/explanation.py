"""What an explanation holds: arrays with names, over the words of the sentence and the regions of the picture."""

from dataclasses import dataclass
from typing import Any

import numpy as np

# What each array runs over; all of them are float32.
AXES: dict[str, tuple[str, ...]] = {
    "word_to_region": ("words", "regions"),
    "region_to_word": ("regions", "words"),
    "region_to_region": ("regions", "regions"),
    "word_gates": ("words",),
    "region_gates": ("regions",),
    "word_weights": ("words",),
    "region_weights": ("regions",),
    "word_fit": ("words",),
    "region_fit": ("regions",),
    "word_share": ("words",),
    "region_share": ("regions",),
    "slot_to_region": ("iterations", "slots", "regions"),
    "slot_to_word": ("iterations", "slots", "words"),
    "slot_similarity": ("slots", "slots"),
    "word_drop": ("words",),
    "region_drop": ("regions",),
    "together": ("words", "regions"),
}


@dataclass(frozen=True)
class Explanation:
    """Why one picture and one sentence have their score. What a model does not have is None.

    kind: the matcher's; words: as people write them, the special tokens left out
    size: width and height that the boxes refer to; boxes: (regions, 4), x0 y0 x1 y1
    grid: rows and columns, where the first regions are the cells of the picture in reading order

    Attention; what is missing to a row's 1 goes to tokens that are not shown or, in MMCA, to the row's own side:
    word_to_region: (words, regions); region_to_word: (regions, words); region_to_region: (regions, regions), MMCA's
        self-attention
    CAMP: word_gates, region_gates: how much of its message each lets in, the mean over d; word_weights,
        region_weights: the weights of the aggregation
    SCAN: word_fit or region_fit, the cosine of each with what it attends to
    VSE: word_share, region_share: the part of the pooled vector that each supplies
    DivE: slot_to_region (iterations, slots, regions), slot_to_word (iterations, slots, words), slot_similarity
        (picture slots, sentence slots), the cosines; nearest: for each picture slot the nearest of the given
        sentences with their cosines, best first

    Of any matcher, with one word or region left out at a time:
    word_drop, region_drop: by how much the score falls without it
    together: (words, regions), how much more it falls without the one while the other is there,
        s - s(without w) - s(without r) + s(without both)
    """

    kind: str
    sentence: str
    words: tuple[str, ...]
    score: float
    regions: int
    boxes: np.ndarray | None = None
    size: tuple[int, int] | None = None
    grid: tuple[int, int] | None = None
    word_to_region: np.ndarray | None = None
    region_to_word: np.ndarray | None = None
    region_to_region: np.ndarray | None = None
    word_gates: np.ndarray | None = None
    region_gates: np.ndarray | None = None
    word_weights: np.ndarray | None = None
    region_weights: np.ndarray | None = None
    word_fit: np.ndarray | None = None
    region_fit: np.ndarray | None = None
    word_share: np.ndarray | None = None
    region_share: np.ndarray | None = None
    slot_to_region: np.ndarray | None = None
    slot_to_word: np.ndarray | None = None
    slot_similarity: np.ndarray | None = None
    word_drop: np.ndarray | None = None
    region_drop: np.ndarray | None = None
    together: np.ndarray | None = None
    nearest: tuple[tuple[tuple[str, float], ...], ...] = ()

    def arrays(self) -> dict[str, np.ndarray]:
        """All arrays that there are, by name."""
        return {name: array for name in AXES if (array := getattr(self, name)) is not None}

    def looks(self) -> tuple[str, np.ndarray] | None:
        """Where each word looks, and the array that says so: (words, regions), 0 or more.

        The words' own attention; else how much of the regions' attention each word draws; else what the two do
        together. Of MMCA first what they do together: its attention does not fall on what a word names.
        """
        if self.kind == "mmca" and self.together is not None:
            return "together", self.together.clip(min=0)
        if self.word_to_region is not None:
            return "word_to_region", self.word_to_region
        if self.region_to_word is not None:
            return "region_to_word", self.region_to_word.T
        if self.together is not None:
            return "together", self.together.clip(min=0)
        return None

    def answers(self) -> tuple[str, np.ndarray] | None:
        """Which words each region has to do with, and the array that says so: (regions, words), 0 or more."""
        if self.region_to_word is not None and self.kind != "mmca":
            return "region_to_word", self.region_to_word
        found = self.looks()
        return None if found is None else (found[0], found[1].T)

    def whole(self) -> tuple[str, np.ndarray] | None:
        """Where the whole sentence looks: (regions,), 0 or more.

        What won the pooling; else the last iteration's slots, all together; else the mean over words of `looks`.
        """
        if self.region_share is not None:
            return "region_share", self.region_share
        if self.slot_to_region is not None:
            return "slot_to_region", self.slot_to_region[-1].mean(0)
        found = self.looks()
        return None if found is None or not self.words else (found[0], found[1].mean(0))

    def strength(self) -> tuple[str, np.ndarray] | None:
        """What the words are shaded by: (words,). Gates; else SCAN's cosines; else the score's drop; else shares."""
        for name in ("word_gates", "word_fit", "word_drop", "word_share"):
            array: np.ndarray | None = getattr(self, name)
            if array is not None:
                return name, array
        return None

    def to_json(self) -> dict[str, Any]:
        """Everything, for a JSON file: each array with its axes, shape and values."""
        return {
            "model": self.kind,
            "sentence": self.sentence,
            "words": list(self.words),
            "score": self.score,
            "regions": self.regions,
            "size": None if self.size is None else list(self.size),
            "grid": None if self.grid is None else list(self.grid),
            "boxes": None if self.boxes is None else _rounded(self.boxes),
            "arrays": {
                name: {"axes": list(AXES[name]), "shape": list(array.shape), "values": _rounded(array)}
                for name, array in self.arrays().items()
            },
            "nearest": [[{"sentence": s, "cosine": c} for s, c in slot] for slot in self.nearest],
        }


def _rounded(array: np.ndarray) -> list[Any]:
    """Nested lists of the shortest decimals that a float32 needs."""
    return np.vectorize(lambda x: float(f"{x:.7g}"), otypes=[object])(array).tolist() if array.size else []
