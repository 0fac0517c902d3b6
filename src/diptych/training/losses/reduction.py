"""The costs of a batch to one number."""

from typing import Literal

from torch import Tensor

Reduction = Literal["sum", "mean"]


def reduce(costs: Tensor, reduction: Reduction) -> Tensor:
    """The sum of all costs, or their mean."""
    return costs.sum() if reduction == "sum" else costs.mean()
