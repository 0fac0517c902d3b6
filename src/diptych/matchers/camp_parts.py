"""Parts of CAMP around its message passing: what is kept and shown, how pairs are laid out, how a set becomes one."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from diptych.encoders.images import xavier_linear
from diptych.matchers.kept import Kept, kept


@dataclass(frozen=True)
class CAMPKept(Kept):
    """All local vectors, and what does not depend on the pair; a field that the options do not need has width 0.

    keys: (n, k, d_h), the side's own map of equation 1
    own: (n, k, d), the side's own part of its fusion's Linear
    sent: (n, k, d), the part that the other side's Linear makes of what is sent to it
    """

    keys: Tensor = kept(1)
    own: Tensor = kept(1)
    sent: Tensor = kept(1)


@dataclass(frozen=True)
class RevisedKept(CAMPKept):
    """What `revised` needs besides.

    queries: (n, k, d_h), by which the side attends to the other
    relation: (n, k, k), query . key / sqrt(d) of the second attention, between the vectors that messages are made of
    gram: (n, k, k), inner products of the vectors, which give the length of a message
    """

    queries: Tensor = kept(1)
    relation: Tensor = kept(1, 2)
    gram: Tensor = kept(1, 2)


@dataclass(frozen=True)
class Meeting:
    """Receivers x (r items each) meet senders y (w items each): every pair, or aligned pairs alone.

    Tensors of pairs are `(y, x, ...)` for every pair and `(pairs, ...)` for aligned ones. The senders come first, since
    messages are then one matrix product a sender, and nothing as large as `(y, x, r, d)` is ever copied.
    """

    aligned: bool

    def receivers(self, x: Tensor) -> Tensor:
        """(x, ...) so that it broadcasts over pairs: (1, x, ...), or as it is."""
        return x if self.aligned else x.unsqueeze(0)

    def senders(self, y: Tensor) -> Tensor:
        """(y, ...) so that it broadcasts over pairs: (y, 1, ...), or as it is."""
        return y if self.aligned else y.unsqueeze(1)

    def products(self, x: Tensor, y: Tensor) -> Tensor:
        """Inner products of all items of each pair: (x, r, d), (y, w, d) -> (y, x, r, w)."""
        return torch.einsum("prd,pwd->prw" if self.aligned else "xrd,ywd->yxrw", x, y)

    def messages(self, weights: Tensor, y: Tensor) -> Tensor:
        """Weighted sums of the senders' items: (y, x, r, w), (y, w, d) -> (y, x, r, d)."""
        return torch.einsum("prw,pwd->prd" if self.aligned else "yxrw,ywd->yxrd", weights, y)


EVERY_PAIR, ALIGNED_PAIRS = Meeting(aligned=False), Meeting(aligned=True)


def masked_softmax(logits: Tensor, mask: Tensor, dim: int = -1) -> Tensor:
    """Softmax over what is real, in float32 whatever the logits are; pads get exactly 0."""
    full = logits.float()
    return full.masked_fill(~mask, torch.finfo(full.dtype).min).softmax(dim).to(logits.dtype)


def uniform(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Equal weights on what is real: (..., k) -> (..., k)."""
    weights = mask.to(dtype)
    return weights / weights.sum(-1, keepdim=True).clamp(min=1)


def weighted_sum(weights: Tensor, vectors: Tensor) -> Tensor:
    """(..., k), (..., k, d) -> (..., d)."""
    return (weights.unsqueeze(-2) @ vectors).squeeze(-2)


class Aggregation(nn.Module):
    """Weights of a set's items, from which one vector is summed.

    attention: softmax(w x / sqrt(d)), the paper's equations 10 and 11
    multi-head: a two-layer MLP to several heads, no scaling; the heads' sums, averaged, are one sum with the heads'
        weights averaged
    mean: equal weights

    No bias where it would add the same to all items: softmax does not see it.
    """

    def __init__(self, kind: Literal["attention", "multi-head", "mean"], dim: int, heads: int) -> None:
        super().__init__()
        self.scale = math.sqrt(dim)
        self.first: nn.Linear | None = None
        self.second: nn.Linear | None = None
        if kind == "attention":
            self.first = xavier_linear(dim, 1, bias=False)
        elif kind == "multi-head":
            self.first = xavier_linear(dim, dim)
            self.second = xavier_linear(dim, heads, bias=False)

    def project(self, x: Tensor) -> Tensor:
        """The first layer: (..., d) -> (..., 1), (..., d) or, for a mean, (..., 0)."""
        return x[..., :0] if self.first is None else self.first(x)

    def forward(self, projected: Tensor, mask: Tensor) -> Tensor:
        """What `project` gave (..., k, h) and the mask (..., k) -> weights (..., k)."""
        if self.first is None:
            return uniform(mask, projected.dtype).expand(projected.shape[:-1])
        logits = projected / self.scale if self.second is None else self.second(projected.relu())
        return masked_softmax(logits, mask.unsqueeze(-1), dim=-2).mean(-1)
