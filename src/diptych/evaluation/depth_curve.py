"""Re-ranking at several depths, from two matrices of scores that are at hand: what each depth and fusion is worth."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from diptych.common.errors import DiptychError
from diptych.evaluation.evaluate import evaluate_scores
from diptych.evaluation.figures import Figures, with_ranges
from diptych.evaluation.ranks import Ranks
from diptych.evaluation.rerank import reranked_ranks
from diptych.evaluation.result import Evaluation
from diptych.scoring.fusion import Fusion, fuse


@dataclass(frozen=True)
class DepthPoint:
    """The recalls where a second stage rescored the best part `depth` of each query, its scores joined by `fusion`."""

    depth: float
    fusion: Fusion
    figures: Figures


def depth_curve(
    first: np.ndarray, second: np.ndarray, owners: np.ndarray, depths: Sequence[float], fusions: Sequence[Fusion]
) -> list[DepthPoint]:
    """Both stages' scores (pictures, sentences) at every depth with every fusion, as `evaluate_reranked` has them.

    owners: (sentences,), the picture of each

    >>> points = depth_curve(scores, scores, np.arange(4), [0.5, 1.0], ["replace"])
    >>> [point.figures["rsum"] == evaluate_scores(scores)["rsum"] for point in points]
    [True, True]
    """
    if first.shape != second.shape:
        raise DiptychError(f"depth_curve: scores of {first.shape} and of {second.shape}; expected the same pairs")
    wrong = next((depth for depth in depths if not 0 < depth <= 1), None)
    if wrong is not None:
        raise DiptychError(f"depth: expected a part above 0 and at most 1, got {wrong}")
    base, owners = evaluate_scores(first, owners), np.asarray(owners)
    pictures = np.arange(len(first))[:, None] == owners
    ways = [
        _Way(base, "i2t", first, second, pictures, max(depths)),
        _Way(base, "t2i", first.T, second.T, pictures.T, max(depths)),
    ]
    points = []
    for depth in depths:
        for fusion in fusions:
            figures, _ = with_ranges([(ways[0].ranks(depth, fusion), ways[1].ranks(depth, fusion))])
            points.append(DepthPoint(depth, fusion, figures))
    return points


class _Way:
    """One direction: each query's best candidates by the first stage, the best first, down to the greatest depth."""

    def __init__(
        self, base: Evaluation, direction: str, first: np.ndarray, second: np.ndarray, right: np.ndarray, most: float
    ) -> None:
        self.base, self.direction, self.items = base, direction, first.shape[1]
        count = math.ceil(most * self.items)
        scores = torch.from_numpy(np.ascontiguousarray(first))
        self.first, places = (found.numpy() for found in scores.topk(count, dim=1))
        self.second = np.take_along_axis(second, places, 1)
        self.right = np.take_along_axis(right, places, 1)

    def ranks(self, depth: float, fusion: Fusion) -> Ranks:
        count = math.ceil(depth * self.items)
        fused = fuse(self.first[:, :count], self.second[:, :count], fusion)
        return reranked_ranks(
            self.base, self.direction, torch.from_numpy(fused), torch.from_numpy(self.right[:, :count])
        )
