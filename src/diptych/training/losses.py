"""Losses over a matrix of scores: which pairs are positive is all they know besides.

Similarity (the matcher's), negatives (hardest, all, averaged), loss (hinge, BCE, InfoNCE, sigmoid) and reduction
combine freely. A caption of the same picture is never a negative, however many of them a batch holds.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Negatives = Literal["hardest", "all", "mean"]
Reduction = Literal["sum", "mean"]


@dataclass(frozen=True)
class HingeConfig:
    """max(0, margin + s(negative) - s(positive)), both directions.

    all_negatives_epochs: first epochs that take all negatives whatever `negatives` says
    """

    kind: Literal["hinge"] = "hinge"
    margin: float = 0.2
    negatives: Negatives = "hardest"
    reduction: Reduction = "mean"
    all_negatives_epochs: int = 0


@dataclass(frozen=True)
class BCEConfig:
    """CAMP's eq. 14 as meant: -[2 log m(I,C) + log(1 - m(I,C')) + log(1 - m(I',C))], from logits.

    learned_scale: logits become scale * score + bias, for matchers whose scores are cosines
    """

    kind: Literal["bce"] = "bce"
    negatives: Negatives = "hardest"
    reduction: Reduction = "mean"
    all_negatives_epochs: int = 0
    learned_scale: bool = False


@dataclass(frozen=True)
class InfoNCEConfig:
    """Cross-entropy of the positive among the batch's negatives at a learned temperature, both directions averaged."""

    kind: Literal["infonce"] = "infonce"
    temperature: float = 0.07
    reduction: Reduction = "mean"


@dataclass(frozen=True)
class SigmoidConfig:
    """SigLIP's loss: every pair on its own, -log sigmoid(±(scale * score + bias)), summed over a picture's pairs."""

    kind: Literal["sigmoid"] = "sigmoid"
    scale: float = 10.0
    bias: float = -10.0
    reduction: Reduction = "mean"


LossConfig = HingeConfig | BCEConfig | InfoNCEConfig | SigmoidConfig


class Loss(nn.Module):
    """A loss on scores (n pictures, m captions).

    owners: (m,), the row of each caption's own picture
    positive: (n, m), True where picture and caption belong together
    """

    def __init__(self, config: LossConfig) -> None:
        super().__init__()
        self.config = config
        if isinstance(config, InfoNCEConfig):
            self.log_scale = nn.Parameter(torch.tensor(-math.log(config.temperature)))
        elif isinstance(config, SigmoidConfig):
            self.log_scale = nn.Parameter(torch.tensor(math.log(config.scale)))
            self.bias = nn.Parameter(torch.tensor(config.bias))
        elif isinstance(config, BCEConfig) and config.learned_scale:
            self.log_scale = nn.Parameter(torch.tensor(math.log(10.0)))
            self.bias = nn.Parameter(torch.tensor(0.0))

    @property
    def takes_logits(self) -> bool:
        """Whether the matrix should hold logits instead of scores."""
        return isinstance(self.config, BCEConfig)

    def forward(self, scores: Tensor, owners: Tensor, positive: Tensor, epoch: int = 0) -> Tensor:
        """One number."""
        config = self.config
        if isinstance(config, HingeConfig):
            per_pair = hinge(scores, owners, positive, config.margin, self._negatives(config, epoch))
        elif isinstance(config, BCEConfig):
            logits = self.log_scale.exp() * scores + self.bias if config.learned_scale else scores
            per_pair = binary_cross_entropy(logits, owners, positive, self._negatives(config, epoch))
        elif isinstance(config, InfoNCEConfig):
            # CLIP's bound on the scale keeps a confident batch from overflowing it.
            per_pair = info_nce(scores * self.log_scale.exp().clamp(max=100.0), owners, positive)
        else:
            per_pair = pairwise_sigmoid(scores * self.log_scale.exp() + self.bias, positive)
        return per_pair.sum() if config.reduction == "sum" else per_pair.mean()

    @staticmethod
    def _negatives(config: HingeConfig | BCEConfig, epoch: int) -> Negatives:
        return "all" if epoch < config.all_negatives_epochs else config.negatives


def reduce_negatives(costs: Tensor, negative: Tensor, negatives: Negatives) -> Tensor:
    """Costs (pairs, candidates) of negatives to one per pair; 0 where a pair has no negative."""
    costs = costs.masked_fill(~negative, 0)
    if negatives == "hardest":
        return costs.amax(1)
    total = costs.sum(1)
    return total if negatives == "all" else total / negative.sum(1).clamp(min=1)


def hinge(scores: Tensor, owners: Tensor, positive: Tensor, margin: float, negatives: Negatives) -> Tensor:
    """Per caption c with picture i: sum over both directions of [margin + s(negative) - s(i, c)]₊ (m,)."""
    own = scores[owners, torch.arange(len(owners), device=scores.device)]
    captions = (margin + scores[owners] - own.unsqueeze(1)).clamp(min=0)  # (m, m): other captions for picture i
    pictures = (margin + scores.T - own.unsqueeze(1)).clamp(min=0)  # (m, n): other pictures for caption c
    return reduce_negatives(captions, ~positive[owners], negatives) + reduce_negatives(pictures, ~positive.T, negatives)


def binary_cross_entropy(logits: Tensor, owners: Tensor, positive: Tensor, negatives: Negatives) -> Tensor:
    """Per caption: -2 log m(i, c) - log(1 - m(i, c')) - log(1 - m(i', c)), m = sigmoid(logit) (m,).

    -log m = softplus(-z) and -log(1 - m) = softplus(z): exact where a clamped sigmoid has lost its gradient.
    """
    own = logits[owners, torch.arange(len(owners), device=logits.device)]
    wrong = F.softplus(logits)
    return (
        2 * F.softplus(-own)
        + reduce_negatives(wrong[owners], ~positive[owners], negatives)
        + reduce_negatives(wrong.T, ~positive.T, negatives)
    )


def info_nce(logits: Tensor, owners: Tensor, positive: Tensor) -> Tensor:
    """Per caption: -log softmax of its own pair among its negatives, averaged over both directions (m,)."""
    index = torch.arange(len(owners), device=logits.device)
    own = logits[owners, index]
    lowest = torch.finfo(logits.dtype).min
    captions = logits[owners].masked_fill(positive[owners], lowest).logsumexp(1)
    pictures = logits.T.masked_fill(positive.T, lowest).logsumexp(1)
    return (torch.logaddexp(captions, own) + torch.logaddexp(pictures, own)) / 2 - own


def pairwise_sigmoid(logits: Tensor, positive: Tensor) -> Tensor:
    """Per picture: the sum over captions of -log sigmoid(±logit) (n,)."""
    sign = positive.to(logits.dtype) * 2 - 1
    return F.softplus(-sign * logits).sum(1)
