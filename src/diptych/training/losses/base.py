"""What a loss is: a matrix of scores and which pairs belong together in, one number out."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from diptych.training.losses.reduction import Reduction, reduce


class Loss(nn.Module, ABC):
    """A loss on scores (n pictures, m captions and any number of foils behind them, which are nobody's captions).

    A subclass defines its costs, and says whether they are computed from logits instead of scores.

    >>> loss = HingeConfig(margin=0.5, reduction="sum").build()
    >>> loss(torch.zeros(2, 2), torch.tensor([0, 1]), torch.eye(2, dtype=torch.bool))
    tensor(2.)
    """

    takes_logits: bool = False

    def __init__(self, reduction: Reduction) -> None:
        super().__init__()
        self.reduction: Reduction = reduction

    @abstractmethod
    def costs(self, scores: Tensor, owners: Tensor, positive: Tensor, epoch: int) -> Tensor:
        """One cost a caption (m,), or one a picture (n,).

        >>> loss.costs(torch.zeros(2, 2), torch.tensor([0, 1]), torch.eye(2, dtype=torch.bool), epoch=0)
        tensor([1., 1.])
        """

    def collapsed(self, captions: int, epoch: int) -> float | None:
        """What the loss is where all scores of so many captions are the same, if it can stay there; None if not."""
        return None

    def forward(self, scores: Tensor, owners: Tensor, positive: Tensor, epoch: int = 0) -> Tensor:
        """One number, of scores (n pictures, m captions and f foils).

        owners: (m,), the row of each caption's own picture
        positive: (n, m + f), True where picture and caption belong together
        epoch: how far the run is, from 0

        >>> loss(torch.zeros(2, 2), torch.tensor([0, 1]), torch.eye(2, dtype=torch.bool))
        tensor(1.)
        """
        return reduce(self.costs(scores, owners, positive, epoch), self.reduction)


def own_scores(scores: Tensor, owners: Tensor) -> Tensor:
    """The score of each caption with its own picture: (m,)."""
    return scores[owners, torch.arange(len(owners), device=scores.device)]
