"""How good a matcher is by now: the figures of each validation set, and their means."""

from collections.abc import Sequence

import torch
from torch import Tensor

from diptych.data.batches import Pixels
from diptych.data.collection import Collection
from diptych.data.join import distinct_names
from diptych.evaluation.evaluate import evaluate_kept, evaluate_matcher
from diptych.matchers.base import Matcher
from diptych.matchers.kept import Kept
from diptych.training.held_features import HeldFeatures


def validate(
    matcher: Matcher,
    sets: Sequence[Collection],
    pixels: Sequence[Tensor] | None = None,
    dtype: torch.dtype | None = None,
) -> dict[str, float]:
    """The figures of one set; of several, each set's with its name in front, and their means without.

    pixels: the sets' decoded pictures (n, size, size, 3) where they are held
    dtype: what large products of scores are computed in
    """
    if pixels is None:
        each = [_of_collection(matcher, part, dtype) for part in sets]
    else:
        each = [_of_pixels(matcher, part, held, dtype) for part, held in zip(sets, pixels, strict=True)]
    if len(each) == 1:
        return each[0]
    means = {key: sum(figures[key] for figures in each) / len(each) for key in each[0]}
    named = {
        f"{name}/{key}": value
        for name, figures in zip(distinct_names(sets), each, strict=True)
        for key, value in figures.items()
    }
    return means | named


def _of_collection(matcher: Matcher, collection: Collection, dtype: torch.dtype | None) -> dict[str, float]:
    if isinstance(collection.features, HeldFeatures):
        return _of_images(matcher, collection, collection.features.encode(matcher, collection), dtype)
    return evaluate_matcher(matcher, collection, dtype=dtype).figures


def _of_pixels(matcher: Matcher, collection: Collection, pixels: Tensor, dtype: torch.dtype | None) -> dict[str, float]:
    images = matcher.encode_images(Pixels(pixels), batch_size=256).to("cpu")
    return _of_images(matcher, collection, images, dtype)


def _of_images(matcher: Matcher, collection: Collection, images: Kept, dtype: torch.dtype | None) -> dict[str, float]:
    texts, owners = collection.captions()
    sentences = matcher.encode_texts(texts, batch_size=1024).to("cpu")
    return evaluate_kept(matcher, images, sentences, owners, dtype=dtype).figures
