"""Which pairs are right: a sparse set of (picture, sentence) positions."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from diptych.common.errors import DiptychError


@dataclass(frozen=True, eq=False)
class Positives:
    """The right pairs, sorted by picture and then by sentence, none twice.

    images: (pairs,) int64, positions of pictures
    texts: (pairs,) int64, positions of sentences
    """

    images: np.ndarray
    texts: np.ndarray

    def __len__(self) -> int:
        return len(self.images)

    @staticmethod
    def from_owners(owners: Any, images: int) -> "Positives":
        """Each sentence belongs to one picture: `owners` (sentences,) gives its position below `images`."""
        array = as_owners(owners, images)
        return Positives.from_pairs(array, np.arange(len(array)), (images, len(array)))

    @staticmethod
    def from_pairs(images: Any, texts: Any, shape: tuple[int, int]) -> "Positives":
        """Any set of right pairs: a sentence may fit several pictures; `shape` is (pictures, sentences)."""
        rows, columns = np.asarray(images, dtype=np.int64), np.asarray(texts, dtype=np.int64)
        if rows.shape != columns.shape or rows.ndim != 1:
            raise DiptychError(f"positives: expected two lists of one length, got {rows.shape} and {columns.shape}")
        if not len(rows):
            raise DiptychError("positives: expected at least one right pair")
        for name, positions, size in (("picture", rows, shape[0]), ("sentence", columns, shape[1])):
            if positions.min() < 0 or positions.max() >= size:
                wrong = positions[(positions < 0) | (positions >= size)][0]
                raise DiptychError(f"positives: {name} {wrong} does not exist; expected positions 0 to {size - 1}")
        cells = np.unique(rows * shape[1] + columns)
        return Positives(cells // shape[1], cells % shape[1])


def as_owners(owners: Any, images: int) -> np.ndarray:
    """Owners as (sentences,) int64, each checked to be a picture's position."""
    array = np.asarray(owners)
    if array.ndim != 1 or not len(array) or not np.issubdtype(array.dtype, np.integer):
        raise DiptychError(f"owners: expected the picture of each sentence as a list of whole numbers, got {array!r}")
    wrong = np.flatnonzero((array < 0) | (array >= images))
    if len(wrong):
        j = wrong[0]
        raise DiptychError(f"owners: sentence {j} belongs to picture {array[j]}; expected positions 0 to {images - 1}")
    return array.astype(np.int64)


def even_owners(images: int, sentences: int) -> np.ndarray:
    """Owners where every picture has equally many sentences, one picture after the other: (sentences,)."""
    if images == 0 or sentences == 0 or sentences % images:
        raise DiptychError(
            f"owners: {sentences} sentences do not divide evenly among {images} pictures; "
            "give the picture of each sentence"
        )
    return np.repeat(np.arange(images, dtype=np.int64), sentences // images)
