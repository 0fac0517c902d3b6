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
        (x, p), (y, q) = _weighed(images), _weighed(texts)
        return p @ _kernel(x, x) @ p - 2 * p @ _kernel(x, y) @ q + q @ _kernel(y, y) @ q


def _weighed(side: Kept) -> tuple[Tensor, Tensor]:
    """All vectors in one row (n k, d), and the share of each in their mean (n k,): none where it is padding.

    To pick those that are no padding would be to ask a GPU how many they are, and to wait for its answer.
    """
    vectors = side.vectors.masked_fill(~side.mask.unsqueeze(-1), 0).flatten(0, 1)
    real = side.mask.flatten().to(torch.promote_types(vectors.dtype, torch.float32))
    return vectors.to(real.dtype), real / real.sum()


def _kernel(x: Tensor, y: Tensor) -> Tensor:
    squared = (x * x).sum(-1, keepdim=True) + (y * y).sum(-1) - 2 * x @ y.T
    # The root has no slope at 0, where a vector meets itself or its double: those pairs are constant.
    near = squared < 1e-6
    return torch.exp(-0.5 * squared.masked_fill(near, 1).sqrt().masked_fill(near, 0))


MMD = LossTerm(mmd)
