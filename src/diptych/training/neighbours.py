"""Batches of pictures that are hard to tell apart: a pair's negatives are then those that a search would confuse."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from diptych.common.bounds import check_bounds
from diptych.common.errors import DiptychError
from diptych.data.collection import Collection
from diptych.evaluation.encode import encode_pictures
from diptych.matchers.base import Matcher
from diptych.training.held_pictures import HeldPictures, draw_views

BLOCK = 2048  # pictures whose neighbours are looked for at once


@dataclass(frozen=True)
class NeighboursConfig:
    """Who stands beside whom in a batch.

    model: whose picture vectors say which pictures are alike; it compares vectors, such as `default`
    group: so many pictures of a batch are alike, and the batch is made of such groups
    depth: a picture's group is drawn anew each epoch from so many of those most like it
    """

    model: str
    group: int = 4
    depth: int = 50

    def __post_init__(self) -> None:
        check_bounds(self, "group", low=2)
        check_bounds(self, "depth", low=1)


def find_neighbours(
    config: NeighboursConfig, collection: Collection, held: HeldPictures | None, device: torch.device
) -> np.ndarray:
    """The pictures most like each, the most alike first, never itself: (n, depth), or fewer where there are fewer.

    held: the collection's pictures where they are on the device already
    """
    matcher = Matcher.from_pretrained(config.model).to(device)
    if matcher.layout() is None:
        raise DiptychError(
            f"training.neighbours.model: {config.model} compares no vectors; expected a model that can search"
        )
    vectors = _vectors(matcher, collection, held)
    most = min(config.depth, len(vectors) - 1)
    if most < 1:
        raise DiptychError(f"{collection.name}: training.neighbours: expected at least two pictures")
    rows = []
    for start in range(0, len(vectors), BLOCK):
        cosines = vectors[start : start + BLOCK] @ vectors.T
        here = torch.arange(len(cosines), device=cosines.device)
        cosines[here, here + start] = -torch.inf
        rows.append(cosines.topk(most, dim=1).indices.to("cpu", torch.int32))
    return torch.cat(rows).numpy()


def _vectors(matcher: Matcher, collection: Collection, held: HeldPictures | None) -> Tensor:
    """One unit vector a picture (n, K * d): a set's elements side by side."""
    preprocess = matcher.preprocess
    asked = None if preprocess is None else (preprocess.size, preprocess.resample)
    if held is None or (held.size, held.resample) != asked:
        kept = encode_pictures(matcher, collection).to(matcher.device)
        return torch.nn.functional.normalize(kept.vectors.flatten(1), dim=1)
    parts = []
    for start in range(0, len(collection), 256):
        places = range(start, min(start + 256, len(collection)))
        views = draw_views(list(places), held.pixels.shape[1], None).to(held.pixels.device)
        parts.append(matcher.encode_images(held.cut(views), batch_size=256).vectors.flatten(1))
    return torch.nn.functional.normalize(torch.cat(parts), dim=1)


def group_alike(order: np.ndarray, alike: np.ndarray, group: int, rng: np.random.Generator) -> np.ndarray:
    """The same pictures in an order in which each run of `group` is alike, as far as any are left.

    order: (n,), the pictures of an epoch, shuffled; alike: (all, depth), as of `find_neighbours`
    """
    free = np.zeros(len(alike), bool)
    free[order] = True
    groups: list[list[int]] = []
    for first in order:
        if not free[first]:
            continue
        free[first] = False
        near = alike[first][free[alike[first]]]
        chosen = rng.permutation(near)[: group - 1]
        free[chosen] = False
        groups.append([int(first), *(int(i) for i in chosen)])
    # Late groups are small, since their pictures' neighbours are taken: spread over the epoch, not all at its end.
    shuffled = rng.permutation(len(groups))
    return np.array([picture for place in shuffled for picture in groups[place]])
