"""Similarities and figures of sets against loops written from their formulas."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from diptych.encoders.encoded import l2
from diptych.matchers.set_similarity import (
    all_cosines,
    chamfer,
    circular_variance,
    mil,
    mp,
    mp_logit,
    pair_cosines,
    smooth_chamfer,
)

CLOSE = {"atol": 1e-5, "rtol": 1e-5}


def sets(n: int, k: int, d: int = 6, seed: int = 0) -> Tensor:
    return l2(torch.randn(n, k, d, generator=torch.Generator().manual_seed(seed)))


def slow_similarity(kind: str, x: Tensor, y: Tensor, alpha: float = 16.0, a: float = 1.0, b: float = 0.0) -> Tensor:
    """Of one set (K, d) and one set (L, d)."""
    c = [[(s * t).sum() for t in y] for s in x]
    columns = list(zip(*c, strict=True))
    if kind == "mil":
        return torch.stack([torch.stack(row).max() for row in c]).max()
    if kind == "mp":
        return torch.stack([1 / (1 + torch.exp(-(a * e + b))) for row in c for e in row]).mean()
    total = torch.zeros(())
    for side in (c, columns):
        for row in side:
            if kind == "chamfer":
                best = torch.stack(list(row)).max()
            else:
                best = torch.stack([torch.exp(alpha * e) for e in row]).sum().log() / alpha
            total = total + best / len(side) / 2
    return total


SIMILARITIES = {
    "smooth-chamfer": smooth_chamfer,
    "chamfer": chamfer,
    "mil": mil,
    "mp": lambda c: mp(c, 3.0, -0.5),
}


@pytest.mark.parametrize("kind", sorted(SIMILARITIES))
@pytest.mark.parametrize(("k", "other"), [(4, 4), (1, 1), (1, 3), (5, 2)])
def test_every_pair_and_its_gradient_is_the_loop(kind: str, k: int, other: int) -> None:
    x, y = sets(3, k, seed=1).requires_grad_(), sets(4, other, seed=2).requires_grad_()
    slow = torch.stack([torch.stack([slow_similarity(kind, s, t, a=3.0, b=-0.5) for t in y]) for s in x])
    fast = SIMILARITIES[kind](all_cosines(x, y))
    torch.testing.assert_close(fast, slow, **CLOSE)
    torch.testing.assert_close(SIMILARITIES[kind](pair_cosines(x, y[:3])), slow.diagonal(), **CLOSE)
    weights = torch.randn(3, 4)
    for got, expected in zip(
        torch.autograd.grad((fast * weights).sum(), (x, y)),
        torch.autograd.grad((slow * weights).sum(), (x, y)),
        strict=True,
    ):
        torch.testing.assert_close(got, expected, **CLOSE)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 5), st.integers(1, 5), st.floats(0.5, 60), st.integers(0, 1000))
def test_smooth_chamfer_lies_just_above_chamfer(k: int, other: int, alpha: float, seed: int) -> None:
    c = all_cosines(sets(2, k, seed=seed), sets(3, other, seed=seed + 1))
    smooth, hard = smooth_chamfer(c, alpha), chamfer(c)
    gap = (math.log(k) + math.log(other)) / 2 / alpha
    assert (smooth >= hard - 1e-5).all()
    assert (smooth <= hard + gap + 1e-5).all()


def test_smooth_chamfer_is_symmetric_and_blind_to_order() -> None:
    x, y = sets(3, 4, seed=1), sets(5, 4, seed=2)
    scores = smooth_chamfer(all_cosines(x, y))
    torch.testing.assert_close(smooth_chamfer(all_cosines(y, x)).T, scores, **CLOSE)
    torch.testing.assert_close(smooth_chamfer(all_cosines(x[:, [2, 0, 3, 1]], y.flip(1))), scores, **CLOSE)


def test_a_very_sharp_smooth_chamfer_neither_overflows_nor_vanishes() -> None:
    c = torch.tensor([[[1.0, -1.0], [-1.0, -1.0]]])
    torch.testing.assert_close(smooth_chamfer(c, 1000.0), chamfer(c), atol=1e-2, rtol=0)


def test_the_logit_of_the_match_probability_is_exact_far_from_a_half() -> None:
    c = all_cosines(sets(3, 4, seed=1), sets(4, 4, seed=2))
    torch.testing.assert_close(torch.sigmoid(mp_logit(c, 2.0, -1.0)), mp(c, 2.0, -1.0), **CLOSE)
    far = mp_logit(c.double(), 1.0, 40.0)
    p = mp(-c.double(), 1.0, -40.0)  # 1 - p of the above
    torch.testing.assert_close(far, -p.log(), atol=1e-6, rtol=1e-6)


def test_circular_variance_of_equal_opposite_and_random_sets() -> None:
    v = sets(2, 1)
    torch.testing.assert_close(circular_variance(v.expand(-1, 4, -1)), torch.zeros(2), **CLOSE)
    torch.testing.assert_close(circular_variance(torch.cat([v, -v], 1)), torch.ones(2), **CLOSE)
    x = sets(3, 4)
    slow = [1 - torch.stack([e / e.norm() for e in 5 * s]).mean(0).norm() for s in x]
    torch.testing.assert_close(circular_variance(5 * x), torch.stack(slow), **CLOSE)
