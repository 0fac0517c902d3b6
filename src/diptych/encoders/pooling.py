"""A set of vectors to one: mean and max over what is real."""

import torch
from torch import Tensor


def mean_pool(vectors: Tensor, mask: Tensor) -> Tensor:
    """Mean over real vectors: (n, k, d), (n, k) -> (n, d)."""
    weights = mask.unsqueeze(-1).to(vectors.dtype)
    return (vectors * weights).sum(1) / weights.sum(1).clamp(min=1)


def max_pool(vectors: Tensor, mask: Tensor) -> Tensor:
    """Largest real value of each dimension: (n, k, d), (n, k) -> (n, d)."""
    return vectors.masked_fill(~mask.unsqueeze(-1), torch.finfo(vectors.dtype).min).amax(1)
