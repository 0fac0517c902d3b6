"""The sigmoid loss against a loop over pairs, written from its formula."""

import math

import pytest
import torch
from torch import Tensor

from diptych.training.losses.sigmoid import SigmoidConfig
from tests.training.losses.batches import BATCHES, assert_is, batch, every_batch

CONFIGS = [SigmoidConfig(scale=2.0, bias=-1.0), SigmoidConfig(scale=1.0, bias=0.5, reduction="sum"), SigmoidConfig()]


def slow(config: SigmoidConfig, scores: Tensor, positive: Tensor) -> list[Tensor]:
    costs = []
    for i in range(scores.shape[0]):
        total = torch.zeros((), dtype=torch.float64)
        for c in range(scores.shape[1]):
            sign = 1.0 if positive[i, c] else -1.0
            total = total - torch.log(torch.sigmoid(sign * (config.scale * scores[i, c] + config.bias)))
        costs.append(total)
    return costs


@pytest.mark.parametrize("config", CONFIGS, ids=str)
@every_batch
def test_value_and_gradient_are_those_of_the_loop(config: SigmoidConfig, name: str) -> None:
    scores, owners, positive = batch(*BATCHES[name])
    assert_is(config, slow(config, scores, positive), scores, owners, positive)


def test_what_is_left_out_is_siglips() -> None:
    """A scale of 10 and a bias of -10, with which the many wrong pairs of a batch cost little at first."""
    scores = torch.tensor([[0.3]], dtype=torch.float64)
    cost = SigmoidConfig().build()(scores, torch.tensor([0]), torch.tensor([[True]]))
    assert float(cost) == pytest.approx(math.log1p(math.exp(-(10 * 0.3 - 10))))
