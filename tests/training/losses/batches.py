"""Batches for every loss, odd ones on purpose, and what loops over their pairs share."""

import pytest
import torch
from torch import Tensor

from diptych.training.losses.catalog import LossConfig, build_loss
from diptych.training.losses.mining import Negatives

# Owners of the captions, and numbers of the pictures: a picture may be named twice.
BATCHES: dict[str, tuple[list[int], list[int]] | tuple[list[int], list[int], int]] = {
    "one caption each": ([0, 1, 2, 3], [10, 11, 12, 13]),
    "several captions": ([0, 0, 1, 2, 2, 2], [10, 11, 12]),
    "captions in disorder": ([2, 0, 2, 1, 0], [10, 11, 12]),
    "the same picture twice": ([0, 1, 2, 3], [10, 11, 10, 12]),
    "a picture without captions": ([0, 2], [10, 11, 12]),
    "one picture": ([0, 0], [10]),
    "one pair": ([0], [10]),
    "one picture twice": ([0, 1], [10, 10]),
    "foils behind the captions": ([0, 0, 1, 2], [10, 11, 12], 3),
    "one pair and a foil": ([0], [10], 1),
}
every_batch = pytest.mark.parametrize("name", BATCHES)


def batch(owners: list[int], pictures: list[int], foils: int = 0, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Random scores with gradient, owners, and which pairs are positive: none with a foil."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(len(pictures), len(owners) + foils, generator=generator, dtype=torch.float64)
    ids, own = torch.tensor(pictures), torch.tensor(owners)
    positive = ids.unsqueeze(1) == ids[own].unsqueeze(0)
    return scores.requires_grad_(), own, torch.cat([positive, positive.new_zeros(len(ids), foils)], 1)


def wrong_captions(positive: Tensor, picture: int) -> list[int]:
    return [c for c in range(positive.shape[1]) if not positive[picture, c]]


def wrong_pictures(positive: Tensor, caption: int) -> list[int]:
    return [i for i in range(positive.shape[0]) if not positive[i, caption]]


def combine(costs: list[Tensor], negatives: Negatives) -> Tensor:
    """The costs of some negatives, one by one, to one."""
    if not costs:
        return torch.zeros((), dtype=torch.float64)
    stacked = torch.stack(costs)
    return {"hardest": stacked.max(), "all": stacked.sum(), "mean": stacked.mean()}[negatives]


def reduce(costs: list[Tensor], reduction: str) -> Tensor:
    total = torch.zeros((), dtype=torch.float64)
    for cost in costs:
        total = total + cost
    return total if reduction == "sum" else total / len(costs)


def assert_is(config: LossConfig, slow: list[Tensor], scores: Tensor, owners: Tensor, positive: Tensor) -> None:
    """The loss and its gradient are those of a loop's costs."""
    expected = reduce(slow, config.reduction) + 0 * scores.sum()
    actual = build_loss(config).double()(scores, owners, positive)
    torch.testing.assert_close(actual, expected, atol=1e-6, rtol=1e-6)
    (wanted,) = torch.autograd.grad(expected, scores)
    (gradient,) = torch.autograd.grad(actual, scores)
    torch.testing.assert_close(gradient, wanted, atol=1e-6, rtol=1e-6)
