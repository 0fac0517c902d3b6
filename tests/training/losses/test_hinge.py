"""The hinge loss against a loop over pairs, written from its formula."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from diptych.training.losses.catalog import build_loss
from diptych.training.losses.hinge import HingeConfig
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
    *(HingeConfig(negatives=n, reduction=r) for n in ("hardest", "all", "mean") for r in ("sum", "mean")),
    HingeConfig(margin=0.0),
    HingeConfig(margin=1.5, negatives="all"),
]


def slow(config: HingeConfig, scores: Tensor, owners: Tensor, positive: Tensor) -> list[Tensor]:
    zero = torch.zeros((), dtype=torch.float64)
    costs = []
    for c, i in enumerate(owners.tolist()):
        s = scores[i, c]
        left = [torch.maximum(zero, config.margin + scores[i, d] - s) for d in wrong_captions(positive, i)]
        right = [torch.maximum(zero, config.margin + scores[j, c] - s) for j in wrong_pictures(positive, c)]
        costs.append(combine(left, config.negatives) + combine(right, config.negatives))
    return costs


@pytest.mark.parametrize("config", CONFIGS, ids=str)
@every_batch
def test_value_and_gradient_are_those_of_the_loop(config: HingeConfig, name: str) -> None:
    scores, owners, positive = batch(*BATCHES[name])
    assert_is(config, slow(config, scores, owners, positive), scores, owners, positive)


@given(st.integers(1, 5), st.lists(st.integers(0, 4), min_size=1, max_size=8), st.integers(0, 1000))
@settings(max_examples=50, deadline=None)
def test_any_batch_is_the_loop(pictures: int, owners: list[int], seed: int) -> None:
    scores, own, positive = batch([o % pictures for o in owners], list(range(pictures)), seed=seed)
    config = HingeConfig()
    assert_is(config, slow(config, scores, own, positive), scores, own, positive)


def test_a_caption_of_the_same_picture_is_never_a_negative() -> None:
    scores = torch.tensor([[0.1, 5.0, 0.0], [0.0, 0.0, 9.0]])
    owners, ids = torch.tensor([0, 0, 1]), torch.tensor([7, 8])
    positive = ids.unsqueeze(1) == ids[owners].unsqueeze(0)
    loss = build_loss(HingeConfig(reduction="sum"))(scores, owners, positive)
    # Caption 0 scores 0.1: only the other picture's caption (0.0) and the other picture (0.0) count against it.
    assert float(loss) == pytest.approx(0.1 + 0.1)


def test_the_first_epochs_can_take_all_negatives() -> None:
    scores, owners, positive = batch(*BATCHES["one caption each"])
    warm = build_loss(HingeConfig(all_negatives_epochs=1))
    hardest, everything = build_loss(HingeConfig()), build_loss(HingeConfig(negatives="all"))
    assert warm(scores, owners, positive, epoch=0) == everything(scores, owners, positive)
    assert warm(scores, owners, positive, epoch=1) == hardest(scores, owners, positive)
    assert hardest(scores, owners, positive) != everything(scores, owners, positive)


@pytest.mark.parametrize(
    ("config", "epoch", "expected"),
    [
        (HingeConfig(margin=0.2), 0, 0.4),
        (HingeConfig(margin=1.0), 3, 2.0),
        (HingeConfig(margin=0.2, reduction="sum"), 0, 0.4 * 7),
        (HingeConfig(margin=0.2, all_negatives_epochs=2), 1, None),
        (HingeConfig(margin=0.2, all_negatives_epochs=2), 2, 0.4),
        (HingeConfig(margin=0.2, negatives="all"), 0, None),
        (HingeConfig(margin=0.2, negatives="mean"), 0, None),
        (HingeConfig(margin=0.0), 0, None),
    ],
)
def test_what_a_collapsed_matcher_costs(config: HingeConfig, epoch: int, expected: float | None) -> None:
    """It is what the loss gives where all scores are the same; without a margin, or of all negatives, it is no trap."""
    told = build_loss(config).collapsed(7, epoch)
    assert told == (expected if expected is None else pytest.approx(expected))
    if expected is not None:
        same = torch.zeros(7, 7), torch.arange(7), torch.eye(7, dtype=torch.bool)
        assert float(build_loss(config)(*same, epoch)) == pytest.approx(expected)


def test_a_loss_is_that_of_the_first_epoch_where_none_is_said() -> None:
    scores, owners, positive = batch(*BATCHES["one caption each"])
    warm = build_loss(HingeConfig(all_negatives_epochs=1))
    assert warm(scores, owners, positive) == warm(scores, owners, positive, epoch=0)
    assert warm(scores, owners, positive) != warm(scores, owners, positive, epoch=1)
