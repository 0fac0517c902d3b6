"""Binary cross-entropy: every pair is a match or is not (CAMP)."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from diptych.common.bounds import check_bounds
from diptych.training.losses.base import Loss, own_scores
from diptych.training.losses.mining import FirstNegatives, Mining, Negatives
from diptych.training.losses.reduction import Reduction


@dataclass(frozen=True)
class BCEConfig:
    """CAMP's eq. 14 as meant: -[2 log m(I,C) + log(1 - m(I,C')) + log(1 - m(I',C))], from logits.

    negatives: with `mean`, the conventional loss of CAMP's Table 3: -[log m(I,C) + 1/b Σ log(1 - m)] over the b
        negative pairs of the batch
    all_negatives_epochs: first epochs that take all negatives whatever `negatives` says
    first_negatives: how they take them: each caption's `all`, summed, or their `mean` as above
    learned_scale: logits become scale * score + bias, for matchers whose scores are cosines
    """

    kind: Literal["bce"] = "bce"
    negatives: Negatives = "hardest"
    reduction: Reduction = "mean"
    all_negatives_epochs: int = 0
    first_negatives: FirstNegatives = "all"
    learned_scale: bool = False

    def __post_init__(self) -> None:
        check_bounds(self, "all_negatives_epochs", low=0)

    def build(self) -> Loss:
        """The loss with these settings."""
        return BCELoss(self)


class BCELoss(Loss):
    """CAMP's loss. It sees the matcher's logits, never its scores."""

    takes_logits = True

    def __init__(self, config: BCEConfig) -> None:
        super().__init__(config.reduction)
        self.learned_scale = config.learned_scale
        self.mining = Mining(config.negatives, config.all_negatives_epochs, config.first_negatives)
        if config.learned_scale:
            self.log_scale = nn.Parameter(torch.tensor(math.log(10.0)))
            self.bias = nn.Parameter(torch.tensor(0.0))

    def collapsed(self, captions: int, epoch: int) -> float | None:
        """4 log 2, while the hardest negatives count: with m = 1/2 for every pair their gradients cancel out too."""
        if self.mining.at(epoch) != "hardest":
            return None
        return 4 * math.log(2) * (captions if self.reduction == "sum" else 1)

    def costs(self, scores: Tensor, owners: Tensor, positive: Tensor, epoch: int) -> Tensor:
        """Per caption: -2 log m(i, c) - log(1 - m(i, c')) - log(1 - m(i', c)), m = sigmoid(logit) (m,).

        With the mean of negatives: -log m(i, c), and the mean of -log(1 - m) over all negative pairs of the batch.
        -log m = softplus(-z) and -log(1 - m) = softplus(z): exact where a clamped sigmoid has lost its gradient.
        """
        logits = self.log_scale.exp() * scores + self.bias if self.learned_scale else scores
        own, wrong = own_scores(logits, owners), F.softplus(logits)
        if self.mining.at(epoch) == "mean":
            pairs = (~positive).sum().clamp(min=1)
            return F.softplus(-own) + wrong.masked_fill(positive, 0).sum() / pairs
        return (
            2 * F.softplus(-own)
            + self.mining(wrong[owners], ~positive[owners], epoch)
            + self.mining(wrong.T[: len(owners)], ~positive.T[: len(owners)], epoch)
        )
