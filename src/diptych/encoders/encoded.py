"""What an encoder gives a matcher."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Encoded:
    """Local vectors of a batch, with what some matchers need besides.

    vectors: (n, k, d), local vectors in the joint dimension
    mask: (n, k), True where a vector is real
    whole: (n, d), one vector for the whole item where the encoder has one: the last GRU state, the projected [CLS]
    inputs: (n, k, w), the local vectors before they were put in context: word embeddings, raw region features
    """

    vectors: Tensor
    mask: Tensor
    whole: Tensor | None
    inputs: Tensor


def l2(x: Tensor) -> Tensor:
    """x / (‖x‖ + 1e-8) along the last dimension: never a division by zero, and no jump near it."""
    return x / (x.norm(dim=-1, keepdim=True) + 1e-8)


def unit_rms(x: Tensor) -> Tensor:
    """Vectors (..., d) at a length of sqrt(d), so that a number of theirs is about 1; computed in float32 at least."""
    return (math.sqrt(x.shape[-1]) * l2(x.to(torch.promote_types(x.dtype, torch.float32)))).to(x.dtype)
