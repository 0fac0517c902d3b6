"""Maximum mean discrepancy: draws what is kept of pictures and what is kept of sentences together (DivE)."""

import torch
from torch import Tensor

from diptych.matchers.kept import Kept
from diptych.training.terms.base import LossTerm


def mmd(images: Kept, texts: Kept) -> Tensor:
    """Maximum mean discrepancy between the real vectors x of all pictures and y of all sentences.

    mean k(x, x') - 2 mean k(x, y) + mean k(y, y') over all vectors, k = exp(-0.5 ‖x - y‖), the distance not squared.
    """
    with torch.autocast(images.device.type, enabled=False):
        x, y = _real_vectors(images), _real_vectors(texts)
        return _kernel(x, x).mean() - 2 * _kernel(x, y).mean() + _kernel(y, y).mean()


def _real_vectors(side: Kept) -> Tensor:
    """All vectors that are no padding, in one row: (sum of lengths, d)."""
    vectors = side.vectors[side.mask]
    return vectors.to(torch.promote_types(vectors.dtype, torch.float32))


def _kernel(x: Tensor, y: Tensor) -> Tensor:
    squared = (x * x).sum(-1, keepdim=True) + (y * y).sum(-1) - 2 * x @ y.T
    # The root has no slope at 0, where a vector meets itself or its double: those pairs are constant.
    near = squared < 1e-6
    return torch.exp(-0.5 * squared.masked_fill(near, 1).sqrt().masked_fill(near, 0))


MMD = LossTerm(mmd)
