"""Maximum mean discrepancy against a loop over vectors, written from its formula."""

import pytest
import torch
from torch import Tensor

from diptych.matchers.kept import Kept
from diptych.training.terms.mmd import mmd
from tests.training.terms.sides import CLOSE, side

SIDES = {
    "sets": ([4, 4], [4, 4, 4]),
    "one vector each": ([1, 1, 1], [1, 1]),
    "one of each": ([1], [1]),
    "ragged": ([3, 1, 5], [2, 4]),
    "one picture": ([3], [2, 1, 6]),
}


def slow_mmd(images: Kept, texts: Kept) -> Tensor:
    def mean_kernel(a: list[Tensor], b: list[Tensor]) -> Tensor:
        total = torch.zeros(())
        for i in a:
            for j in b:
                # A vector with itself is a constant; the norm has no slope there.
                total = total + (1 if torch.equal(i, j) else torch.exp(-0.5 * (i - j).norm()))
        return total / (len(a) * len(b))

    def real(kept: Kept) -> list[Tensor]:
        return [kept.vectors[i, j] for i in range(len(kept)) for j in range(int(kept.lengths[i]))]

    x, y = real(images), real(texts)
    return mean_kernel(x, x) - 2 * mean_kernel(x, y) + mean_kernel(y, y)


@pytest.mark.parametrize("name", SIDES)
@pytest.mark.parametrize("padding", [0, 2])
def test_value_and_gradient_are_those_of_the_loop(name: str, padding: int) -> None:
    images, texts = (side(lengths, seed=i, padding=padding) for i, lengths in enumerate(SIDES[name]))
    fast, slow = mmd(images, texts), slow_mmd(images, texts)
    torch.testing.assert_close(fast, slow, **CLOSE)
    both = (images.vectors, texts.vectors)
    for got, expected in zip(torch.autograd.grad(fast, both), torch.autograd.grad(slow, both), strict=True):
        torch.testing.assert_close(got, expected, **CLOSE)


def test_of_a_batch_with_itself_it_is_nothing_and_doubles_do_no_harm() -> None:
    once = side([3, 3])
    twice = type(once).cat([once, once])
    assert abs(float(mmd(twice, twice).detach())) < 1e-6
    (gradient,) = torch.autograd.grad(mmd(twice, side([3, 2], seed=8)), once.vectors)
    assert gradient.isfinite().all()


def test_descending_it_draws_the_sides_together() -> None:
    images, texts = side([2, 2], seed=1), side([2, 2], seed=2)
    (gradient,) = torch.autograd.grad(mmd(images, texts), images.vectors)
    moved = Kept(images.vectors - 0.1 * gradient, images.mask)
    assert mmd(moved, texts) < mmd(images, texts)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float32(dtype: torch.dtype) -> None:
    images, texts = side([3, 1, 5]).to(dtype=dtype), side([2, 4], seed=1).to(dtype=dtype)
    expected = mmd(images.to(dtype=torch.float32), texts.to(dtype=torch.float32))
    assert torch.equal(mmd(images, texts), expected)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(mmd(images, texts), expected)
