"""Which negatives a pair is held against. What is positive is never one of them."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

Negatives = Literal["hardest", "all", "mean"]
FirstNegatives = Literal["all", "mean"]


@dataclass(frozen=True)
class Mining:
    """The costs of a pair's negatives to one cost.

    negatives: the largest cost (`hardest`), the sum of `all`, or their `mean`
    all_negatives_epochs: first epochs that take all negatives whatever `negatives` says
    first_negatives: what they take of them: the sum (`all`), or the `mean`
    """

    negatives: Negatives = "hardest"
    all_negatives_epochs: int = 0
    first_negatives: FirstNegatives = "all"

    def at(self, epoch: int) -> Negatives:
        """Which negatives count in an epoch."""
        return self.first_negatives if epoch < self.all_negatives_epochs else self.negatives

    def __call__(self, costs: Tensor, negative: Tensor, epoch: int) -> Tensor:
        """Costs (pairs, candidates), none below 0, to one a pair; 0 where a pair has no negative.

        negative: (pairs, candidates), True where the candidate is a negative of the pair
        """
        negatives = self.at(epoch)
        costs = costs.masked_fill(~negative, 0)
        if negatives == "hardest":
            return costs.amax(1)
        total = costs.sum(1)
        return total if negatives == "all" else total / negative.sum(1).clamp(min=1)
