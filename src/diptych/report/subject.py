"""What a report looks at: a matcher with the pictures and sentences of a split, or a fair draw of them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from diptych.common.errors import DiptychError
from diptych.data.collection import Collection
from diptych.evaluation.encode import encode_collection
from diptych.evaluation.evaluate import collection_ids, evaluate_kept
from diptych.evaluation.result import Evaluation
from diptych.matchers.base import Matcher
from diptych.matchers.kept import Kept

MOST = {"features": 1000, "pixels": 500}  # pictures that are looked at by default
# Numbers of working memory that scoring may go through: a minute or so on two cores, and on a GPU.
WORK = {"cpu": 4e10, "cuda": 4e12}
FIRST = 16  # pictures that tell how large a set is


@dataclass(frozen=True, eq=False)
class Subject:
    """A matcher and what it kept of a collection.

    captions: all sentences; owners: (sentences,), the picture of each
    whole: pictures that the split has; fewer are looked at where they were drawn
    """

    matcher: Matcher
    collection: Collection
    images: Kept
    texts: Kept
    captions: list[str]
    owners: np.ndarray
    split: str
    whole: int

    @property
    def sampled(self) -> bool:
        """Whether pictures were drawn out of more."""
        return len(self.collection) < self.whole

    def evaluate(self) -> Evaluation:
        """Ranks of all pictures with all sentences that are looked at."""
        ids = collection_ids(self.collection)
        return evaluate_kept(self.matcher, self.images, self.texts, self.owners, "all-pairs", *ids)


def look_at(
    matcher: Matcher, collection: Collection, split: str = "", most: int | None = None, seed: int = 0
) -> Subject:
    """Encode a collection, or as many of its pictures, drawn with the seed, as scoring all pairs allows.

    most: pictures at most; by default 1,000, or 500 through a backbone, and fewer where each pair is dear
    """
    told = replace(collection, items=[item for item in collection.items if item.sentences])
    if not told.items:
        raise DiptychError("the split has no picture with a sentence", where=collection.name)
    limit = affordable(matcher, told) if most is None else most
    drawn = told
    if len(told) > limit:
        drawn = replace(told, items=[told.items[i] for i in draw(len(told), limit, seed)])
    images, texts = encode_collection(matcher, drawn)
    captions, owners = drawn.captions()
    return Subject(matcher, drawn, images, texts, captions, owners, split, len(told))


def affordable(matcher: Matcher, collection: Collection) -> int:
    """How many pictures are looked at where nobody says: n pictures with all their sentences are n x each n pairs."""
    few = collection.first(FIRST)
    images, texts = encode_collection(matcher, few)
    each = sum(len(item.sentences) for item in collection.items) / len(collection)
    floats = matcher.pair_floats(int(images.lengths.max()), int(texts.lengths.max()))
    work = WORK["cpu" if matcher.device.type == "cpu" else "cuda"]
    most = MOST["features" if matcher.takes_features else "pixels"]
    return max(FIRST, min(most, int(math.sqrt(work / (floats * each)))))


def draw(size: int, count: int, seed: int) -> Sequence[int]:
    """So many different positions below `size`, in order; all of them where there are no more."""
    if count >= size:
        return range(size)
    return [int(i) for i in np.sort(np.random.default_rng(seed).choice(size, count, replace=False))]
