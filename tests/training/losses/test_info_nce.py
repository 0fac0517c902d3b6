"""InfoNCE against a loop over pairs, written from its formula."""

import math

import pytest
import torch
from torch import Tensor

from diptych.training.losses.catalog import build_loss
from diptych.training.losses.info_nce import InfoNCEConfig
from tests.training.losses.batches import BATCHES, assert_is, batch, every_batch, wrong_captions, wrong_pictures

CONFIGS = [InfoNCEConfig(temperature=0.5), InfoNCEConfig(reduction="sum"), InfoNCEConfig(temperature=2.0)]


def slow(config: InfoNCEConfig, scores: Tensor, owners: Tensor, positive: Tensor) -> list[Tensor]:
    e = torch.exp(scores / config.temperature)
    costs = []
    for c, i in enumerate(owners.tolist()):
        down = torch.stack([e[i, d] for d in [*wrong_captions(positive, i), c]]).sum()
        across = torch.stack([e[j, c] for j in [*wrong_pictures(positive, c), i]]).sum()
        costs.append(-(torch.log(e[i, c] / down) + torch.log(e[i, c] / across)) / 2)
    return costs


@pytest.mark.parametrize("config", CONFIGS, ids=str)
@every_batch
def test_value_and_gradient_are_those_of_the_loop(config: InfoNCEConfig, name: str) -> None:
    scores, owners, positive = batch(*BATCHES[name])
    assert_is(config, slow(config, scores, owners, positive), scores, owners, positive)


def test_a_caption_of_the_same_picture_is_never_a_negative() -> None:
    scores = torch.tensor([[0.0, 50.0, 0.0], [0.0, 0.0, 0.0]])
    owners, positive = torch.tensor([0, 0, 1]), torch.tensor([[True, True, False], [False, False, True]])
    costs = build_loss(InfoNCEConfig(temperature=1.0)).costs(scores, owners, positive, 0)
    # Caption 0 is picked out of itself and caption 2, and of its own and the other picture.
    assert float(costs[0].detach()) == pytest.approx(math.log(2))


def test_the_scale_is_never_above_a_hundred() -> None:
    scores, owners, positive = batch(*BATCHES["one caption each"])
    sharp = build_loss(InfoNCEConfig(temperature=1e-6)).double()
    costs = list(sharp.costs(scores, owners, positive, 0))
    assert_is(InfoNCEConfig(temperature=0.01), costs, scores, owners, positive)
