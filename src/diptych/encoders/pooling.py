"""A set of vectors to one: mean and max over what is real, and what each vector supplies to the result."""

import torch
from torch import Tensor


def mean_pool(vectors: Tensor, mask: Tensor) -> Tensor:
    """Mean over real vectors: (n, k, d), (n, k) -> (n, d)."""
    # Multiplied by 0, what is not finite would stay so.
    real = vectors.masked_fill(~mask.unsqueeze(-1), 0)
    return real.sum(1) / mask.sum(1, keepdim=True).to(vectors.dtype).clamp(min=1)


def max_pool(vectors: Tensor, mask: Tensor) -> Tensor:
    """Largest real value of each dimension: (n, k, d), (n, k) -> (n, d)."""
    return vectors.masked_fill(~mask.unsqueeze(-1), torch.finfo(vectors.dtype).min).amax(1)


def mean_contributions(mask: Tensor) -> Tensor:
    """Every real vector supplies as much of a mean as every other: (n, k) -> (n, k)."""
    return mask / mask.sum(1, keepdim=True).clamp(min=1)


def max_contributions(vectors: Tensor, mask: Tensor) -> Tensor:
    """The share of dimensions in which each vector is the largest: (n, k, d), (n, k) -> (n, k)."""
    winners = vectors.masked_fill(~mask.unsqueeze(-1), torch.finfo(vectors.dtype).min).argmax(1)
    shares = torch.zeros(mask.shape, device=mask.device)
    return shares.scatter_add(1, winners, torch.ones_like(winners, dtype=shares.dtype)) / vectors.shape[-1] * mask
