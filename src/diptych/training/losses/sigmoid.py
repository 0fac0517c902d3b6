"""The sigmoid loss: every pair of the batch on its own (SigLIP)."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from diptych.common.bounds import check_bounds
from diptych.training.losses.base import Loss
from diptych.training.losses.reduction import Reduction


@dataclass(frozen=True)
class SigmoidConfig:
    """SigLIP's loss: every pair on its own, -log sigmoid(±(scale * score + bias)), summed over a picture's pairs."""

    kind: Literal["sigmoid"] = "sigmoid"
    scale: float = 10.0
    bias: float = -10.0
    reduction: Reduction = "mean"

    def __post_init__(self) -> None:
        check_bounds(self, "scale", above=0)
        check_bounds(self, "bias")

    def build(self) -> Loss:
        """The loss with these settings."""
        return SigmoidLoss(self)


class SigmoidLoss(Loss):
    """SigLIP's loss. Its scale, as log_scale, and its bias are learned."""

    def __init__(self, config: SigmoidConfig) -> None:
        super().__init__(config.reduction)
        self.log_scale = nn.Parameter(torch.tensor(math.log(config.scale)))
        self.bias = nn.Parameter(torch.tensor(config.bias))

    def costs(self, scores: Tensor, owners: Tensor, positive: Tensor, epoch: int) -> Tensor:
        """Per picture: the sum over captions of -log sigmoid(±logit), + where the two belong together (n,)."""
        logits = scores * self.log_scale.exp() + self.bias
        sign = positive.to(logits.dtype) * 2 - 1
        return F.softplus(-sign * logits).sum(1)
