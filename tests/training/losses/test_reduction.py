import torch

from diptych.training.losses.reduction import reduce


def test_costs_are_added_or_averaged() -> None:
    costs = torch.tensor([1.0, 2.0, 6.0])
    assert float(reduce(costs, "sum")) == 9
    assert float(reduce(costs, "mean")) == 3
