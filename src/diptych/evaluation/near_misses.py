"""Near misses: can a matcher tell a sentence from one that differs in a single attribute?"""

from collections.abc import Sequence

import numpy as np
import torch

from diptych.common.errors import DiptychError
from diptych.data.scenes import NearMissPair, SceneFeatures
from diptych.data.scenes.features import RegionKind
from diptych.matchers.base import Matcher, Pictures
from diptych.matchers.kept import Kept


def near_miss_figures(
    matcher: Matcher, pairs: Sequence[NearMissPair], regions: RegionKind = "boxes"
) -> dict[str, float]:
    """How often, in percent, the right one of two scores higher; chance is 50, and a tie counts as wrong.

    near-miss/sentence: the scene's sentence above the changed one; near-miss/picture: the sentence's scene above the
    changed one; near-miss/ATTRIBUTE: both kinds, of pairs that differ in that attribute; near-miss/all: all of them.
    regions: what the matcher was trained on, where it takes local features

    >>> from diptych.data.scenes import near_miss_set
    >>> figures = near_miss_figures(matcher, near_miss_set(4))
    >>> 0 <= figures["near-miss/all"] <= 100
    True
    """
    sentence, picture = near_miss_hits(matcher, pairs, regions)
    attributes = np.array([pair.attribute for pair in pairs])
    figures = {
        "near-miss/all": np.concatenate([sentence, picture]),
        "near-miss/sentence": sentence,
        "near-miss/picture": picture,
    }
    for attribute in dict.fromkeys(attributes):
        chosen = attributes == attribute
        figures[f"near-miss/{attribute}"] = np.concatenate([sentence[chosen], picture[chosen]])
    return {name: 100 * float(hits.mean()) for name, hits in figures.items()}


def near_miss_hits(
    matcher: Matcher, pairs: Sequence[NearMissPair], regions: RegionKind = "boxes"
) -> tuple[np.ndarray, np.ndarray]:
    """Whether the right sentence, and the right picture, scored higher than the other: (pairs,) bool each."""
    if not pairs:
        raise DiptychError("near misses: expected at least one pair")
    pictures: Pictures
    if not matcher.takes_pictures:
        features = SceneFeatures([scene for pair in pairs for scene in (pair.scene, pair.other)], regions)
        pictures = [features[row] for row in range(len(features))]
    else:
        pictures = [draw for pair in pairs for draw in (pair.picture, pair.other_picture)]
    images = matcher.encode_images(pictures)
    texts = matcher.encode_texts([caption.text for pair in pairs for caption in (pair.sentence, pair.wrong)])
    right = _scores(matcher, images[0::2], texts[0::2])
    sentence = right > _scores(matcher, images[0::2], texts[1::2])
    return sentence, right > _scores(matcher, images[1::2], texts[0::2])


def _scores(matcher: Matcher, images: Kept, texts: Kept) -> np.ndarray:
    with matcher.inference():
        parts = [
            matcher.score_pairs(images[start : start + 64], texts[start : start + 64])
            for start in range(0, len(images), 64)
        ]
    return torch.cat(parts).float().cpu().numpy()
