"""Every loss against a loop over pairs, written from its formula."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from diptych.training.losses import BCEConfig, HingeConfig, InfoNCEConfig, Loss, LossConfig, Negatives, SigmoidConfig


def batch(owners: list[int], pictures: list[int], seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Random scores; `pictures` may name a picture twice."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(len(pictures), len(owners), generator=generator, dtype=torch.float64)
    ids, own = torch.tensor(pictures), torch.tensor(owners)
    return scores.requires_grad_(), own, ids.unsqueeze(1) == ids[own].unsqueeze(0)


def combine(costs: list[Tensor], negatives: Negatives) -> Tensor:
    if not costs:
        return torch.zeros((), dtype=torch.float64)
    stacked = torch.stack(costs)
    return {"hardest": stacked.max(), "all": stacked.sum(), "mean": stacked.mean()}[negatives]


def slow(config: LossConfig, scores: Tensor, owners: Tensor, positive: Tensor) -> Tensor:
    n, m = scores.shape
    per_pair = []
    for c in range(m):
        i = int(owners[c])
        captions = [d for d in range(m) if not positive[i, d]]
        pictures = [j for j in range(n) if not positive[j, c]]
        s = scores[i, c]
        if isinstance(config, HingeConfig):
            zero = torch.zeros((), dtype=torch.float64)
            left = [torch.maximum(zero, config.margin + scores[i, d] - s) for d in captions]
            right = [torch.maximum(zero, config.margin + scores[j, c] - s) for j in pictures]
            per_pair.append(combine(left, config.negatives) + combine(right, config.negatives))
        elif isinstance(config, BCEConfig):
            left = [-torch.log(1 - torch.sigmoid(scores[i, d])) for d in captions]
            right = [-torch.log(1 - torch.sigmoid(scores[j, c])) for j in pictures]
            per_pair.append(
                -2 * torch.log(torch.sigmoid(s)) + combine(left, config.negatives) + combine(right, config.negatives)
            )
        elif isinstance(config, InfoNCEConfig):
            z = 1 / config.temperature
            down = torch.stack([scores[i, d] * z for d in [*captions, c]]).exp().sum()
            across = torch.stack([scores[j, c] * z for j in [*pictures, i]]).exp().sum()
            per_pair.append(-(torch.log((s * z).exp() / down) + torch.log((s * z).exp() / across)) / 2)
    if isinstance(config, SigmoidConfig):
        for i in range(n):
            signs = [1.0 if positive[i, c] else -1.0 for c in range(m)]
            terms = [
                -torch.log(torch.sigmoid(sign * (config.scale * scores[i, c] + config.bias)))
                for c, sign in enumerate(signs)
            ]
            per_pair.append(torch.stack(terms).sum())
    stacked = torch.stack(per_pair)
    return stacked.sum() if config.reduction == "sum" else stacked.mean()


CONFIGS: list[LossConfig] = [
    *(HingeConfig(negatives=n, reduction=r) for n in ("hardest", "all", "mean") for r in ("sum", "mean")),
    *(BCEConfig(negatives=n, reduction=r) for n in ("hardest", "all", "mean") for r in ("sum", "mean")),
    InfoNCEConfig(temperature=0.5),
    SigmoidConfig(scale=2.0, bias=-1.0),
]
BATCHES = {
    "one caption each": ([0, 1, 2, 3], [10, 11, 12, 13]),
    "several captions": ([0, 0, 1, 2, 2, 2], [10, 11, 12]),
    "the same picture twice": ([0, 1, 2, 3], [10, 11, 10, 12]),
    "one picture": ([0, 0], [10]),
}


@pytest.mark.parametrize("config", CONFIGS, ids=str)
@pytest.mark.parametrize("name", BATCHES)
def test_values_and_gradients_are_those_of_the_loop(config: LossConfig, name: str) -> None:
    scores, owners, positive = batch(*BATCHES[name])
    expected = slow(config, scores, owners, positive) + 0 * scores.sum()
    (wanted,) = torch.autograd.grad(expected, scores)
    loss = Loss(config).double()
    actual = loss(scores, owners, positive)
    (gradient,) = torch.autograd.grad(actual, scores)
    torch.testing.assert_close(actual, expected, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(gradient, wanted, atol=1e-6, rtol=1e-6)


@given(st.integers(1, 5), st.lists(st.integers(0, 4), min_size=1, max_size=8), st.integers(0, 1000))
@settings(max_examples=50, deadline=None)
def test_hinge_on_any_batch(pictures: int, owners: list[int], seed: int) -> None:
    scores, own, positive = batch([o % pictures for o in owners], list(range(pictures)), seed)
    config = HingeConfig()
    torch.testing.assert_close(
        Loss(config)(scores, own, positive), slow(config, scores, own, positive), atol=1e-6, rtol=1e-6
    )


def test_a_caption_of_the_same_picture_is_never_a_negative() -> None:
    scores = torch.tensor([[0.1, 5.0, 0.0], [0.0, 0.0, 9.0]])
    owners, ids = torch.tensor([0, 0, 1]), torch.tensor([7, 8])
    positive = ids.unsqueeze(1) == ids[owners].unsqueeze(0)
    loss = Loss(HingeConfig(reduction="sum"))(scores, owners, positive)
    # Caption 0 scores 0.1: only the other picture's caption (0.0) and the other picture (0.0) count against it.
    assert float(loss) == pytest.approx(0.1 + 0.1)


def test_the_first_epochs_can_take_all_negatives() -> None:
    scores, owners, positive = batch(*BATCHES["one caption each"])
    warm = Loss(HingeConfig(all_negatives_epochs=1))
    assert warm(scores, owners, positive, epoch=0) == Loss(HingeConfig(negatives="all"))(scores, owners, positive)
    assert warm(scores, owners, positive, epoch=1) == Loss(HingeConfig())(scores, owners, positive)


def test_binary_cross_entropy_is_exact_where_a_sigmoid_has_saturated() -> None:
    logits = torch.tensor([[-200.0, 200.0], [0.0, 0.0]], requires_grad=True)
    owners, positive = torch.tensor([0, 1]), torch.eye(2, dtype=torch.bool)
    loss = Loss(BCEConfig(reduction="sum"))(logits, owners, positive)
    assert loss.item() == pytest.approx(2 * 200 + 200 + math.log(2) + 2 * math.log(2) + math.log(2) + 200, rel=1e-6)
    loss.backward()
    assert logits.grad is not None
    assert logits.grad[0, 0] == pytest.approx(-2)


def test_half_precision_stays_finite() -> None:
    scores, owners, positive = batch(*BATCHES["several captions"])
    for config in CONFIGS:
        assert Loss(config)(scores.detach().to(torch.bfloat16), owners, positive).isfinite()


def test_learned_scales_get_gradients() -> None:
    scores, owners, positive = batch(*BATCHES["several captions"])
    for config in (InfoNCEConfig(), SigmoidConfig(), BCEConfig(learned_scale=True)):
        loss = Loss(config)
        loss(scores.float(), owners, positive).backward()
        assert all(p.grad is not None and p.grad.abs() > 0 for p in loss.parameters())
