"""The hinge loss: a negative must score lower than the positive, by a margin."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from diptych.common.bounds import check_bounds
from diptych.training.losses.base import Loss, own_scores
from diptych.training.losses.mining import FirstNegatives, Mining, Negatives
from diptych.training.losses.reduction import Reduction


@dataclass(frozen=True)
class HingeConfig:
    """max(0, margin + s(negative) - s(positive)), both directions.

    all_negatives_epochs: first epochs that take all negatives whatever `negatives` says
    first_negatives: what they take of them: the sum (`all`, as VSE∞), or the `mean` (as DivE)
    """

    kind: Literal["hinge"] = "hinge"
    margin: float = 0.2
    negatives: Negatives = "hardest"
    reduction: Reduction = "mean"
    all_negatives_epochs: int = 0
    first_negatives: FirstNegatives = "all"

    def __post_init__(self) -> None:
        check_bounds(self, "margin", "all_negatives_epochs", low=0)

    def build(self) -> Loss:
        """The loss with these settings."""
        return HingeLoss(self)


class HingeLoss(Loss):
    """VSE++'s, SCAN's, MMCA's, VSE∞'s and DivE's ranking loss."""

    def __init__(self, config: HingeConfig) -> None:
        super().__init__(config.reduction)
        self.margin = config.margin
        self.mining = Mining(config.negatives, config.all_negatives_epochs, config.first_negatives)

    def collapsed(self, captions: int, epoch: int) -> float | None:
        """The margin, twice, while the hardest negatives count: their gradients cancel out those of the positives."""
        if self.margin == 0 or self.mining.at(epoch) != "hardest":
            return None
        return 2 * self.margin * (captions if self.reduction == "sum" else 1)

    def costs(self, scores: Tensor, owners: Tensor, positive: Tensor, epoch: int) -> Tensor:
        """Per caption c with picture i: sum over both directions of [margin + s(negative) - s(i, c)]₊ (m,)."""
        own = own_scores(scores, owners).unsqueeze(1)
        m = len(owners)
        captions = (self.margin + scores[owners] - own).clamp(min=0)  # (m, m + f): other sentences for picture i
        pictures = (self.margin + scores.T[:m] - own).clamp(min=0)  # (m, n): other pictures for caption c
        return self.mining(captions, ~positive[owners], epoch) + self.mining(pictures, ~positive.T[:m], epoch)
