"""Foils of real captions: can a matcher tell a sentence from one that differs in a single word?"""

from collections.abc import Sequence
from dataclasses import dataclass
from zlib import crc32

import numpy as np

from diptych.data.collection import Collection
from diptych.data.foils import KINDS, Foil, foils
from diptych.evaluation.pair_scores import Scores
from diptych.evaluation.shares import Share, share


@dataclass(frozen=True)
class FoilPair:
    """A picture by its place in the collection, a caption of it, and the caption with one word changed."""

    picture: int
    sentence: str
    foil: Foil


@dataclass(frozen=True)
class FoilFigures:
    """How often the right sentence scores higher with its picture, and with another one (nothing is seen then)."""

    right: Share
    unseen: Share | None

    def flat(self, name: str) -> dict[str, float]:
        """For JSON, by name."""
        figures = {
            name: self.right.value,
            f"{name}/low": self.right.low,
            f"{name}/high": self.right.high,
            f"{name}/pairs": self.right.count,
            f"{name}/pictures": self.right.pictures,
        }
        return figures | ({} if self.unseen is None else {f"{name}/unseen": self.unseen.value})


def foil_pairs(collection: Collection, seed: int = 0) -> list[FoilPair]:
    """One foil of each kind of each caption; no word is put in that another caption of the picture says.

    A picture's foils hang on the seed and its id alone, so that they are the same in a part of the collection.
    """
    pairs = []
    for place, item in enumerate(collection.items):
        rng = np.random.default_rng((seed, crc32(item.id.encode())))
        texts = list(dict.fromkeys(sentence.text for sentence in item.sentences))
        for text in texts:
            pairs += [FoilPair(place, text, foil) for foil in foils(text, rng, texts)]
    return pairs


def foil_figures(pairs: Sequence[FoilPair], own: Scores, other: Scores) -> dict[str, FoilFigures]:
    """The figures of each kind of change, and of all; a tie counts as wrong.

    own, other: the scores of each picture's sentences with it, and with another (see `score_texts`)
    """
    figures = {}
    for kind in ("all", *KINDS):
        chosen = [pair for pair in pairs if kind in ("all", pair.foil.kind)]
        right = _share(chosen, own)
        if right is not None:
            figures[kind] = FoilFigures(right, _share(chosen, other))
    return figures


def _share(pairs: Sequence[FoilPair], scores: Scores) -> Share | None:
    asked = [pair for pair in pairs if scores[pair.picture]]
    hits = [scores[pair.picture][pair.sentence] > scores[pair.picture][pair.foil.text] for pair in asked]
    return share(np.array(hits, dtype=bool), np.array([pair.picture for pair in asked], dtype=np.int64))
