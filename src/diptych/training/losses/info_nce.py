"""InfoNCE: the positive must be picked out among the batch's negatives (CLIP)."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from diptych.common.bounds import check_bounds
from diptych.training.losses.base import Loss, own_scores
from diptych.training.losses.reduction import Reduction


@dataclass(frozen=True)
class InfoNCEConfig:
    """Cross-entropy of the positive among the batch's negatives at a learned temperature, both directions averaged."""

    kind: Literal["infonce"] = "infonce"
    temperature: float = 0.07
    reduction: Reduction = "mean"

    def __post_init__(self) -> None:
        check_bounds(self, "temperature", above=0)

    def build(self) -> Loss:
        """The loss with these settings."""
        return InfoNCELoss(self)


class InfoNCELoss(Loss):
    """CLIP's loss. Its temperature is learned as log_scale = -log temperature."""

    def __init__(self, config: InfoNCEConfig) -> None:
        super().__init__(config.reduction)
        self.log_scale = nn.Parameter(torch.tensor(-math.log(config.temperature)))

    def costs(self, scores: Tensor, owners: Tensor, positive: Tensor, epoch: int) -> Tensor:
        """Per caption: -log softmax of its own pair among its negatives, averaged over both directions (m,)."""
        # CLIP's bound on the scale keeps a confident batch from overflowing it.
        logits = scores * self.log_scale.exp().clamp(max=100.0)
        own = own_scores(logits, owners)
        lowest = torch.finfo(logits.dtype).min
        captions = logits[owners].masked_fill(positive[owners], lowest).logsumexp(1)
        pictures = logits.T.masked_fill(positive.T, lowest)[: len(owners)].logsumexp(1)
        return (torch.logaddexp(captions, own) + torch.logaddexp(pictures, own)) / 2 - own
