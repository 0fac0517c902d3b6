"""Each picture with sentences of its own choice: scored with it, and with another picture."""

from collections.abc import Sequence

import numpy as np

from diptych.common.errors import DiptychError
from diptych.common.progress import progress_bar
from diptych.data.collection import Collection
from diptych.evaluation.encode import pictures_of
from diptych.evaluation.sources import MatcherSource
from diptych.matchers.base import Matcher

TOGETHER = 128  # pictures encoded and scored before the next; their sentences' local vectors must fit
Scores = list[dict[str, float]]


def score_texts(
    matcher: Matcher, collection: Collection, texts: Sequence[Sequence[str]], batch_size: int = 64
) -> tuple[Scores, Scores]:
    """For each picture the scores of its texts, by text; and those of the same texts with some other picture.

    texts: those of each picture, in the collection's order; each text is encoded once, and so is each picture
    The second tells what a sentence is worth by itself, whatever is seen. Of a single picture it holds nothing.

    >>> own, other = score_texts(matcher, collection, [["a red dog", "a blue dog"]] * len(collection))
    >>> list(own[0]) == list(other[0]) == ["a red dog", "a blue dog"]
    True
    """
    if len(texts) != len(collection):
        raise DiptychError(f"expected texts for each of {len(collection)} pictures, got them for {len(texts)}")
    own: Scores = [{} for _ in texts]
    other: Scores = [{} for _ in texts]
    asked = [place for place, few in enumerate(texts) if few]
    parts = np.array_split(np.array(asked, dtype=np.int64), max(1, -(-len(asked) // TOGETHER)))
    with progress_bar() as bar:
        task = bar.add_task("encoding and scoring", total=len(asked), note="")
        for part in parts:
            _score_part(matcher, collection, texts, part, batch_size, own, other)
            bar.advance(task, len(part))
    return own, other


def _score_part(
    matcher: Matcher,
    collection: Collection,
    texts: Sequence[Sequence[str]],
    part: np.ndarray,
    batch_size: int,
    own: Scores,
    other: Scores,
) -> None:
    if not len(part):
        return
    # Sentences of like length beside each other: less padding is computed.
    unique = sorted({text for place in part for text in texts[place]}, key=lambda text: (len(text), text))
    where = {text: row for row, text in enumerate(unique)}
    images = matcher.encode_images(
        pictures_of(matcher, collection, [collection.items[place] for place in part]), batch_size
    )
    sentences = matcher.encode_texts(unique, 4 * batch_size)
    source = MatcherSource(matcher, images, sentences)
    pairs = [(row, text) for row, place in enumerate(part) for text in dict.fromkeys(texts[place])]
    rows = np.array([row for row, _ in pairs])
    columns = np.array([where[text] for _, text in pairs])
    scores = [(own, source.pairs(rows, columns))]
    if len(part) > 1:
        scores.append((other, source.pairs((rows + len(part) // 2) % len(part), columns)))
    for kept, values in scores:
        for (row, text), value in zip(pairs, values, strict=True):
            kept[part[row]][text] = float(value)
