"""Diversity against a loop over pairs of slots, written from its formula."""

import pytest
import torch
from torch import Tensor

from diptych.matchers.dive import DivEKept
from diptych.training.terms.diversity import diversity
from tests.training.terms.sides import CLOSE, Slotted, side

SIDES = {
    "sets": ([4, 4], [4, 4, 4]),
    "two slots": ([2, 2, 2], [2]),
    "one picture": ([3], [3, 3]),
    "ragged": ([3, 1, 5], [2, 4]),
    "one slot on one side": ([1, 1], [3]),
}


def slow_diversity(images: Slotted | DivEKept, texts: Slotted | DivEKept) -> Tensor:
    total = torch.zeros(())
    for kept in (images, texts):
        each = []
        for slots, length in zip(kept.slots, kept.lengths.tolist(), strict=True):
            unit = [s / s.norm() for s in slots[:length]]
            each += [torch.exp(-2 * (unit[k] - unit[j]).pow(2).sum()) for k in range(length) for j in range(k)]
        if each:
            total = total + torch.stack(each).mean()
    return total


@pytest.mark.parametrize("name", SIDES)
@pytest.mark.parametrize("padding", [0, 2])
def test_value_and_gradient_are_those_of_the_loop(name: str, padding: int) -> None:
    images, texts = (side(lengths, seed=i, padding=padding) for i, lengths in enumerate(SIDES[name]))
    fast, slow = diversity(images, texts), slow_diversity(images, texts)
    torch.testing.assert_close(fast, slow, **CLOSE)
    both = (images.slots, texts.slots)
    got = torch.autograd.grad(fast, both)
    expected = torch.autograd.grad(slow, both, allow_unused=True, materialize_grads=True)
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other, **CLOSE)


def test_single_slots_have_none_and_equal_slots_are_one_a_side() -> None:
    assert float(diversity(side([1, 1]), side([1], seed=1)).detach()) == 0
    mask = torch.ones(2, 3, dtype=torch.bool)
    same = Slotted(torch.ones(2, 3, 6), mask, torch.ones(2, 3, 6))
    assert float(diversity(same, same)) == pytest.approx(2)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float32(dtype: torch.dtype) -> None:
    images, texts = side([3, 1, 5]).to(dtype=dtype), side([2, 4], seed=1).to(dtype=dtype)
    expected = diversity(images.to(dtype=torch.float32), texts.to(dtype=torch.float32))
    assert torch.equal(diversity(images, texts), expected)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(diversity(images, texts), expected)
