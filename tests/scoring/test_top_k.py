"""The best k of each query, beside sorting the whole matrix."""

from collections.abc import Callable
from typing import Literal

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from diptych.common.errors import DiptychError
from diptych.matchers.base import Matcher
from diptych.matchers.kept import Kept
from diptych.scoring.top_k import top_k, top_k_both

Side = Literal["texts", "images"]


@pytest.fixture(scope="module")
def table() -> Callable[[Tensor], tuple[Matcher, Kept, Kept]]:
    """A matcher whose scores are given: pictures are rows of the matrix, sentences unit vectors that pick a column."""
    from diptych.matchers.catalog import build_matcher
    from tests.matchers import inputs
    from tests.matchers.cases import CASES

    vse = build_matcher(CASES["vse++"], inputs.word_tokenizer()).eval()

    def make(scores: Tensor) -> tuple[Matcher, Kept, Kept]:
        n, m = scores.shape
        images = Kept(scores.unsqueeze(1), torch.ones(n, 1, dtype=torch.bool))
        return vse, images, Kept(torch.eye(m).unsqueeze(1), torch.ones(m, 1, dtype=torch.bool))

    return make


def sorted_whole(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Highest first, at equal scores the earlier first."""
    rows = [sorted(range(len(row)), key=lambda j, r=row: (-r[j], j))[:k] for row in scores.tolist()]
    positions = torch.tensor(rows)
    return scores.gather(1, positions), positions


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), query=st.sampled_from(["texts", "images"]), memory=st.sampled_from([1, 300, None]))
def test_equals_sorting_the_whole_matrix_ties_included(
    table: Callable[[Tensor], tuple[Matcher, Kept, Kept]], data: st.DataObject, query: Side, memory: int | None
) -> None:
    n, m = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 9))
    values = st.sampled_from([-2.5, -1.0, -0.0, 0.0, 1e-30, 0.5, 0.7, 1e9])
    scores = torch.tensor(data.draw(st.lists(values, min_size=n * m, max_size=n * m))).view(n, m)
    k = data.draw(st.integers(1, 10))
    found, positions = top_k(*table(scores), k, query, memory=memory)
    expected = sorted_whole(scores if query == "images" else scores.T, k)
    torch.testing.assert_close(positions, expected[1], atol=0, rtol=0)
    torch.testing.assert_close(found, expected[0], atol=0, rtol=0)
    other = data.draw(st.integers(1, 10))
    both = top_k_both(*table(scores), k, other, memory=memory)
    for ways, rows, count in zip(both, (scores.T, scores), (k, other), strict=True):
        expected = sorted_whole(rows, count)
        torch.testing.assert_close(ways[1], expected[1], atol=0, rtol=0)
        torch.testing.assert_close(ways[0], expected[0], atol=0, rtol=0)


def test_both_ways_score_every_pair_once(
    table: Callable[[Tensor], tuple[Matcher, Kept, Kept]], monkeypatch: pytest.MonkeyPatch
) -> None:
    matcher, images, texts = table(torch.randn(7, 11))
    pairs = 0
    score = matcher.score

    def counted(a: Kept, b: Kept) -> Tensor:
        nonlocal pairs
        pairs += len(a) * len(b)
        return score(a, b)

    monkeypatch.setattr(matcher, "score", counted)
    top_k_both(matcher, images, texts, 3, 2, memory=300)
    assert pairs == 7 * 11


def test_finds_the_best_of_every_matcher(matcher: Matcher, sides: tuple[Kept, Kept], whole: Tensor) -> None:
    scores, positions = top_k(matcher, *sides, 3, "texts", memory=30_000)
    matrix = whole.T
    torch.testing.assert_close(scores, matrix.topk(3).values, atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(matrix.gather(1, positions), scores, atol=2e-5, rtol=1e-4)


def test_wrong_arguments_are_named(table: Callable[[Tensor], tuple[Matcher, Kept, Kept]]) -> None:
    given_table = table(torch.eye(2))
    with pytest.raises(DiptychError, match="k: expected at least 1, got 0"):
        top_k(*given_table, 0, "texts")
    with pytest.raises(DiptychError, match="query: expected 'texts' or 'images'"):
        top_k(*given_table, 1, "text")  # type: ignore[arg-type]
    with pytest.raises(DiptychError, match="k: expected at least 1, got 0"):
        top_k_both(*given_table, 1, 0)
