"""How the costs of negatives become one, against a loop over candidates."""

import pytest
import torch

from diptych.training.losses.mining import Mining, Negatives
from tests.training.losses.batches import combine

COSTS = torch.tensor([[3.0, 9.0, 1.0, 0.5], [0.0, 2.0, 2.0, 8.0], [4.0, 5.0, 6.0, 7.0]], dtype=torch.float64)
NEGATIVE = torch.tensor([[True, False, True, True], [True, True, True, False], [False, False, False, False]])


@pytest.mark.parametrize("negatives", ["hardest", "all", "mean"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_costs_of_negatives_alone_count(negatives: Negatives, dtype: torch.dtype) -> None:
    slow = [
        combine([cost for cost, is_one in zip(costs, row, strict=True) if is_one], negatives)
        for costs, row in zip(COSTS, NEGATIVE, strict=True)
    ]
    actual = Mining(negatives)(COSTS.to(dtype), NEGATIVE, epoch=0)
    assert actual.dtype == dtype
    torch.testing.assert_close(actual.double(), torch.stack(slow), atol=1e-2, rtol=1e-2)


def test_a_pair_without_negatives_costs_nothing_and_has_no_gradient() -> None:
    for negatives in ("hardest", "all", "mean"):
        costs = COSTS.clone().requires_grad_()
        total = Mining(negatives)(costs, NEGATIVE, epoch=0)
        assert float(total[2].detach()) == 0
        (gradient,) = torch.autograd.grad(total.sum(), costs)
        assert not gradient[2].any()
        assert not gradient[~NEGATIVE].any()


def test_the_first_epochs_can_average_them() -> None:
    mining = Mining("hardest", all_negatives_epochs=1, first_negatives="mean")
    assert torch.equal(mining(COSTS, NEGATIVE, 0), Mining("mean")(COSTS, NEGATIVE, 0))
    assert torch.equal(mining(COSTS, NEGATIVE, 1), Mining("hardest")(COSTS, NEGATIVE, 0))


@pytest.mark.parametrize("negatives", ["hardest", "mean"])
def test_the_first_epochs_take_all_negatives(negatives: Negatives) -> None:
    mining = Mining(negatives, all_negatives_epochs=2)
    everything, usual = Mining("all")(COSTS, NEGATIVE, 0), Mining(negatives)(COSTS, NEGATIVE, 0)
    assert not torch.equal(everything, usual)
    for epoch in range(4):
        assert torch.equal(mining(COSTS, NEGATIVE, epoch), everything if epoch < 2 else usual)
