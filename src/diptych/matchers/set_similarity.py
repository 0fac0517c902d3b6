"""How two small sets of unit vectors compare, and what is measured of one: DivE's similarities and figures.

A similarity takes the K x L cosines c between the elements of two sets, (..., K, L), and gives one number, (...).
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from diptych.common.fused import inner_products
from diptych.encoders.encoded import l2


def all_cosines(x: Tensor, y: Tensor) -> Tensor:
    """Dot products between the elements of all pairs of sets: (n, K, d), (m, L, d) -> (n, m, K, L), one product."""
    flat = inner_products(x.flatten(0, 1), y.flatten(0, 1))
    return _at_least_float32(flat).view(len(x), x.shape[1], len(y), y.shape[1]).transpose(1, 2)


def pair_cosines(x: Tensor, y: Tensor) -> Tensor:
    """Dot products between the elements of aligned sets: (n, K, d), (n, L, d) -> (n, K, L)."""
    return _at_least_float32(x @ y.transpose(1, 2))


def smooth_chamfer(c: Tensor, alpha: float = 16.0) -> Tensor:
    """[mean_k log sum_l exp(alpha c_kl) + mean_l log sum_k exp(alpha c_kl)] / (2 alpha)."""
    scaled = alpha * c
    return (scaled.logsumexp(-1).mean(-1) + scaled.logsumexp(-2).mean(-1)) / (2 * alpha)


def chamfer(c: Tensor) -> Tensor:
    """[mean_k max_l c_kl + mean_l max_k c_kl] / 2: what smooth-Chamfer tends to as alpha grows."""
    return (c.amax(-1).mean(-1) + c.amax(-2).mean(-1)) / 2


def mil(c: Tensor) -> Tensor:
    """The nearest two elements: max_kl c_kl (multiple-instance learning)."""
    return c.flatten(-2).amax(-1)


def mp(c: Tensor, a: Tensor | float, b: Tensor | float) -> Tensor:
    """Match probability: mean_kl sigmoid(a c_kl + b)."""
    return torch.sigmoid(a * c + b).mean((-2, -1))


def mp_logit(c: Tensor, a: Tensor | float, b: Tensor | float) -> Tensor:
    """log p / (1 - p) of the match probability p, computed without forming p: no loss of digits near 0 and 1."""
    z = (a * c + b).flatten(-2)
    return F.logsigmoid(z).logsumexp(-1) - F.logsigmoid(-z).logsumexp(-1)


def circular_variance(sets: Tensor) -> Tensor:
    """1 - ‖mean of the unit vectors‖ of each set: 0 when all agree, 1 when they cancel out. (n, K, d) -> (n,)."""
    return 1 - l2(sets).mean(1).norm(dim=-1)


def _at_least_float32(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))
