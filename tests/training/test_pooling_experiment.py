import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from diptych.training import pooling_experiment as experiment
from diptych.training.pooling_experiment import (
    DESIGNS,
    LARGER,
    PAPER,
    PATTERNS,
    SEEN,
    SMALLER,
    Budget,
    bigrus_side_by_side,
    coefficient_error,
    errors,
    padded_coefficients,
    train_generators,
    true_coefficients,
)


@given(st.sampled_from(PATTERNS), st.integers(10, 120))
def test_every_pattern_sums_to_one_and_never_rises(pattern: str, size: int) -> None:
    theta = true_coefficients(pattern, size)
    assert theta.shape == (size,)
    assert theta.sum() == pytest.approx(1, abs=1e-5)
    assert (theta.diff() <= 0).all()


def test_the_patterns_are_those_of_the_paper() -> None:
    assert true_coefficients("A", 10).tolist() == pytest.approx([0.1] * 10)
    assert true_coefficients("M-1", 12).tolist() == [1] + [0] * 11
    assert true_coefficients("M-10", 12).tolist() == pytest.approx([0.1] * 10 + [0] * 2)
    assert true_coefficients("T-50%", 11).tolist() == pytest.approx([0.2] * 5 + [0] * 6)
    assert true_coefficients("L", 5).tolist() == pytest.approx([0.4, 0.3, 0.2, 0.1, 0])


def test_the_error_is_the_root_mean_square_over_each_size_then_the_mean_over_sizes() -> None:
    class Fixed:
        def coefficients(self, lengths: torch.Tensor) -> torch.Tensor:
            return padded_coefficients("A", lengths.tolist()).unsqueeze(-1)

        def parameters(self) -> None: ...

    by_hand = []
    for size in (10, 11):
        wrong = [(1 / size - (1.0 if k == 0 else 0.0)) ** 2 for k in range(size)]
        by_hand.append((sum(wrong) / size) ** 0.5)
    fixed = Fixed()
    assert coefficient_error(fixed, "M-1", range(10, 12)) == pytest.approx(sum(by_hand) / 2, abs=1e-6)  # type: ignore[arg-type]
    assert coefficient_error(fixed, "A", SEEN) == 0  # type: ignore[arg-type]


@pytest.mark.parametrize("design", DESIGNS)
def test_coefficients_sum_to_one_on_every_size(design: str) -> None:
    torch.manual_seed(1)
    sizes = torch.tensor([LARGER[-1], SMALLER[0], 1, 50])
    theta = DESIGNS[design]().coefficients(sizes).squeeze(-1)
    assert theta.shape == (4, 120)
    torch.testing.assert_close(theta.sum(1), torch.ones(4))
    assert all(theta[i, n:].abs().sum() == 0 for i, n in enumerate(sizes.tolist()))


@pytest.mark.parametrize("design", ["Index+BiGRU", "Cos/Sin+BiGRU"])
def test_generators_side_by_side_give_what_each_gives_alone(design: str) -> None:
    torch.manual_seed(2)
    generators = [DESIGNS[design]() for _ in range(3)]
    sizes = torch.tensor([1, 9, 4, 9])
    together = bigrus_side_by_side(generators, sizes)  # type: ignore[arg-type]
    alone = torch.stack([generator.coefficients(sizes).squeeze(-1) for generator in generators])
    torch.testing.assert_close(together, alone, atol=1e-6, rtol=1e-5)
    parameters = [p for generator in generators for p in generator.parameters()]
    weights = torch.randn_like(together)
    first = torch.autograd.grad((together * weights).sum(), parameters)
    second = torch.autograd.grad((alone * weights).sum(), parameters)
    for one, other in zip(first, second, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("design", DESIGNS)
def test_a_little_training_brings_the_errors_down(design: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment, "SEEN", range(5, 12))
    before = None
    for generators in train_generators(design, Budget(steps=40, sets=4, dim=32, learning_rate=0.03), seed=0):
        error = coefficient_error(generators["M-1"], "M-1", range(5, 12))
        before = before or error
    assert before is not None
    assert error < before / 2


def test_the_same_seed_trains_the_same_and_leaves_the_callers_dice_alone() -> None:
    budget = Budget(steps=2, sets=2, dim=4)
    torch.manual_seed(9)
    expected = torch.rand(3)
    torch.manual_seed(9)
    runs = [list(train_generators("Cos/Sin+MLP", budget, seed))[-1] for seed in (0, 0, 1)]
    assert torch.equal(torch.rand(3), expected)
    first, again, other = (errors(run["L"], "L") for run in runs)
    assert first == again != other


def test_the_papers_table_is_whole() -> None:
    assert PAPER.keys() == DESIGNS.keys()
    assert all(tuple(row) == PATTERNS for row in PAPER.values())
