from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from diptych.encoders.pooling import max_contributions, max_pool, mean_contributions, mean_pool

SHAPES = st.lists(st.integers(1, 5), min_size=1, max_size=4)  # real vectors of each set


def sets(counts: list[int], extra: int = 2) -> tuple[torch.Tensor, torch.Tensor]:
    """Sets with garbage in the padding."""
    longest = max(counts) + extra
    vectors = torch.randn(len(counts), longest, 3, generator=torch.Generator().manual_seed(sum(counts)))
    mask = torch.arange(longest) < torch.tensor(counts).unsqueeze(1)
    return torch.where(mask.unsqueeze(-1), vectors, torch.full_like(vectors, 1e6)), mask


@given(SHAPES)
def test_mean_and_max_see_only_what_is_real(counts: list[int]) -> None:
    vectors, mask = sets(counts)
    mean, largest = mean_pool(vectors, mask), max_pool(vectors, mask)
    for i, count in enumerate(counts):
        for j in range(3):
            values = [float(vectors[i, k, j]) for k in range(count)]
            assert float(mean[i, j]) == pytest.approx(sum(values) / count, abs=1e-5)
            assert float(largest[i, j]) == pytest.approx(max(values))


@pytest.mark.parametrize("garbage", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("pool", [mean_pool, max_pool])
def test_pads_may_hold_anything(pool: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], garbage: float) -> None:
    vectors, mask = sets([3, 1, 5])
    other = vectors.masked_fill(~mask.unsqueeze(-1), garbage)
    assert torch.equal(pool(other, mask), pool(vectors, mask))


@given(SHAPES)
def test_contributions_are_each_vectors_share(counts: list[int]) -> None:
    vectors, mask = sets(counts)
    mean, largest = mean_contributions(mask), max_contributions(vectors, mask)
    for i, count in enumerate(counts):
        for k in range(mask.shape[1]):
            wins = sum(int(vectors[i, :count, j].argmax()) == k for j in range(3)) if k < count else 0
            assert float(mean[i, k]) == pytest.approx(1 / count if k < count else 0)
            assert float(largest[i, k]) == pytest.approx(wins / 3)


def test_an_empty_set_has_a_mean_of_zero() -> None:
    assert mean_pool(torch.ones(1, 2, 3), torch.zeros(1, 2, dtype=torch.bool)).tolist() == [[0, 0, 0]]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_stays_half(dtype: torch.dtype) -> None:
    vectors, mask = sets([2, 1])
    vectors = vectors.clamp(max=9).to(dtype)
    assert mean_pool(vectors, mask).dtype == max_pool(vectors, mask).dtype == dtype
    assert torch.isfinite(max_pool(vectors, mask)).all()
