"""Binary cross-entropy against a loop over pairs, written from its formula."""

import math

import pytest
import torch
from torch import Tensor

from diptych.training.losses.bce import BCEConfig
from diptych.training.losses.catalog import build_loss
from diptych.training.losses.mining import FirstNegatives
from diptych.training.losses.reduction import Reduction
from tests.training.losses.batches import (
    BATCHES,
    assert_is,
    batch,
    combine,
    every_batch,
    wrong_captions,
    wrong_pictures,
)

CONFIGS = [
    *(BCEConfig(negatives=n, reduction=r) for n in ("hardest", "all", "mean") for r in ("sum", "mean")),
    BCEConfig(learned_scale=True),
]


def slow(config: BCEConfig, scores: Tensor, owners: Tensor, positive: Tensor) -> list[Tensor]:
    m = torch.sigmoid(10 * scores if config.learned_scale else scores)  # a learned scale begins at 10, its bias at 0
    costs = []
    wrong = [-torch.log(1 - m[i, c]) for i in range(m.shape[0]) for c in wrong_captions(positive, i)]
    for c, i in enumerate(owners.tolist()):
        if config.negatives == "mean":  # the conventional loss: of b negative pairs in the batch each counts 1/b
            costs.append(-torch.log(m[i, c]) + combine(wrong, "mean"))
            continue
        left = [-torch.log(1 - m[i, d]) for d in wrong_captions(positive, i)]
        right = [-torch.log(1 - m[j, c]) for j in wrong_pictures(positive, c)]
        costs.append(-2 * torch.log(m[i, c]) + combine(left, config.negatives) + combine(right, config.negatives))
    return costs


@pytest.mark.parametrize("config", CONFIGS, ids=str)
@every_batch
def test_value_and_gradient_are_those_of_the_loop(config: BCEConfig, name: str) -> None:
    scores, owners, positive = batch(*BATCHES[name])
    assert_is(config, slow(config, scores, owners, positive), scores, owners, positive)


def test_it_is_exact_where_a_sigmoid_has_saturated() -> None:
    logits = torch.tensor([[-200.0, 200.0], [0.0, 0.0]], requires_grad=True)
    owners, positive = torch.tensor([0, 1]), torch.eye(2, dtype=torch.bool)
    loss = build_loss(BCEConfig(reduction="sum"))(logits, owners, positive)
    assert loss.item() == pytest.approx(2 * 200 + 200 + math.log(2) + 2 * math.log(2) + math.log(2) + 200, rel=1e-6)
    loss.backward()
    assert logits.grad is not None
    assert logits.grad[0, 0] == pytest.approx(-2)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_where_it_collapses_nothing_pulls(reduction: Reduction) -> None:
    logits, positive = torch.zeros(5, 5, requires_grad=True), torch.eye(5, dtype=torch.bool)
    loss_function = build_loss(BCEConfig(reduction=reduction))
    loss = loss_function(logits, torch.arange(5), positive)
    assert loss.item() == pytest.approx(loss_function.collapsed(5, epoch=0))
    loss.backward()
    assert logits.grad is not None
    assert logits.grad.sum() == pytest.approx(0, abs=1e-6)


def test_a_caption_of_the_same_picture_is_never_a_negative() -> None:
    logits = torch.tensor([[0.0, 50.0], [-50.0, -50.0]])
    owners, positive = torch.tensor([0, 0]), torch.tensor([[True, True], [False, False]])
    loss = build_loss(BCEConfig(negatives="all", reduction="sum"))(logits, owners, positive)
    assert float(loss) == pytest.approx(2 * math.log(2))


@pytest.mark.parametrize("first", ["all", "mean"])
def test_the_first_epochs_can_take_all_negatives(first: FirstNegatives) -> None:
    scores, owners, positive = batch(*BATCHES["one caption each"])
    warm = build_loss(BCEConfig(all_negatives_epochs=2, first_negatives=first))
    hardest, everything = build_loss(BCEConfig()), build_loss(BCEConfig(negatives=first))
    assert warm(scores, owners, positive, epoch=1) == everything(scores, owners, positive)
    assert warm(scores, owners, positive, epoch=2) == hardest(scores, owners, positive)


def test_it_takes_logits_with_a_learned_scale_and_without() -> None:
    assert build_loss(BCEConfig()).takes_logits
    assert build_loss(BCEConfig(learned_scale=True)).takes_logits
