"""What a learned pooling, as VSE∞'s, learned: GPO's coefficients by rank, for sets of every size."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from diptych.data.tokens import encode
from diptych.encoders.gpo import GPO, sort_set
from diptych.explain.seen import see
from diptych.matchers.base import Matcher
from diptych.report.subject import Subject, draw

ITEMS = 64  # pictures, and sentences, whose sizes are looked at
SIZES = 40  # sizes in the map
LINES = 5  # sizes that are drawn as lines


@dataclass(frozen=True, eq=False)
class Coefficients:
    """theta of one side.

    side: `pictures` or `sentences`
    sizes: how many of the looked-at sets have each size
    theta: by size, (size,): rank 1 first, summing to 1; the mean over dimensions or sets where it depends on them
    """

    side: str
    sizes: dict[int, int]
    theta: dict[int, np.ndarray]

    def typical(self) -> list[int]:
        """Up to five sizes that sets have: the smallest, the quarters, the largest."""
        every = sorted(size for size, count in self.sizes.items() for _ in range(count) if size in self.theta)
        places = np.linspace(0, len(every) - 1, LINES)
        return sorted({every[round(place)] for place in places})


def coefficients_of(subject: Subject, seed: int = 0) -> list[Coefficients]:
    """The coefficients of each side that is pooled by GPO; empty for other matchers."""
    matcher, sets = subject.matcher, {"pictures": _image_sets, "sentences": _text_sets}
    with matcher.inference():
        return [_side(name, gpo, sets[name](matcher, subject, seed)) for name, gpo in matcher.pools().items()]


def _side(name: str, gpo: GPO, sets: list[Tensor]) -> Coefficients:
    sizes: dict[int, int] = {}
    for one in sets:
        sizes[len(one)] = sizes.get(len(one), 0) + 1
    shown = sorted(sizes)
    if not gpo.config.features:  # then theta depends on the size alone, and every size has one
        shown = sorted({*Coefficients(name, sizes, {s: np.empty(0) for s in sizes}).typical(), *_spread(max(sizes))})
    theta = {}
    for size in shown:
        values = None
        if gpo.config.features:
            same = torch.stack([one for one in sets if len(one) == size])
            values = sort_set(same, torch.ones(same.shape[:2], dtype=torch.bool, device=same.device))[0]
        count = 1 if values is None else len(values)
        weights = gpo.coefficients(torch.full((count,), size), values)
        theta[size] = weights.mean(0).mean(-1).double().cpu().numpy()
    return Coefficients(name, dict(sorted(sizes.items())), theta)


def _spread(largest: int) -> list[int]:
    """All sizes up to the largest, or forty of them evenly."""
    return sorted({round(x) for x in np.linspace(1, largest, min(SIZES, largest))})


def _image_sets(matcher: Matcher, subject: Subject, seed: int) -> list[Tensor]:
    """Local vectors of drawn pictures: each (size, d)."""
    collection, sets = subject.collection, []
    for i in draw(len(collection), ITEMS, seed):
        item = collection.items[i]
        if collection.features is not None and item.row is not None and matcher.takes_features:
            seen = see(matcher, collection.features[item.row])
        else:
            assert item.open is not None  # it was encoded, so it is there
            seen = see(matcher, item.open)
        encoded = matcher.image_encoder(seen.batch)
        sets.append(encoded.vectors[0][encoded.mask[0]])
    return sets


def _text_sets(matcher: Matcher, subject: Subject, seed: int) -> list[Tensor]:
    """Local vectors of drawn sentences: each (size, d)."""
    texts = [subject.captions[i] for i in draw(len(subject.captions), 4 * ITEMS, seed)]
    encoded = matcher.text_encoder(encode(matcher.tokenizer, texts).to(matcher.device))
    return [vectors[mask] for vectors, mask in zip(encoded.vectors, encoded.mask, strict=True)]
