from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from diptych.common.errors import DiptychError
from diptych.evaluation import ranks as ranks_module
from diptych.evaluation.positives import Positives
from diptych.evaluation.ranks import Ranks, count_ranks, count_true
from diptych.evaluation.sources import EmbeddingSource, MatrixSource, ScoreBlock, ScoreSource, Strip, block_source
from tests.evaluation import naive


@st.composite
def cases(draw: st.DrawFn) -> tuple[np.ndarray, naive.Pairs]:
    """Few different scores, so that ties and equal rows are common; any right pairs."""
    n, m = draw(st.integers(1, 6)), draw(st.integers(1, 9))
    values = st.sampled_from([-1.0, 0.0, 0.25, 0.5, 0.5000001, 1.0])
    flat = draw(st.lists(values, min_size=n * m, max_size=n * m))
    scores = np.array(flat, dtype=np.float32).reshape(n, m)
    if n > 1 and draw(st.booleans()):
        scores[1] = scores[0]
    cells = st.tuples(st.integers(0, n - 1), st.integers(0, m - 1))
    return scores, draw(st.sets(cells, min_size=1, max_size=n * m))


def as_lists(ranks: Ranks) -> list[tuple[int, int, int, int]]:
    return list(
        zip(
            ranks.query.tolist(),
            ranks.place.tolist(),
            ranks.optimistic.tolist(),
            ranks.pessimistic.tolist(),
            strict=True,
        )
    )


def positives(pairs: naive.Pairs, shape: tuple[int, ...]) -> Positives:
    images, texts = zip(*pairs, strict=True)
    return Positives.from_pairs(images, texts, (shape[0], shape[1]))


class Guessing(MatrixSource):
    """A matrix that gives its pairs only roughly."""

    def __init__(self, scores: np.ndarray, off: float, tolerance: float) -> None:
        super().__init__(scores)
        self.off, self.tolerance = off, tolerance  # type: ignore[misc]

    def pairs(self, images: np.ndarray, texts: np.ndarray) -> np.ndarray:
        signs = np.where((images + texts) % 2 == 0, 1.0, -1.0)
        return super().pairs(images, texts) + self.off * signs


@given(cases(), st.booleans())
def test_counted_ranks_are_those_of_the_loop(case: tuple[np.ndarray, naive.Pairs], every: bool) -> None:
    scores, pairs = case
    right = positives(pairs, scores.shape)
    i2t, t2i = count_ranks(MatrixSource(scores), right, every=every)
    assert as_lists(i2t) == naive.ranks(scores, pairs, 0, every)
    assert as_lists(t2i) == naive.ranks(scores, pairs, 1, every)


class Near(MatrixSource):
    """A matrix that is counted where it lies, as on a GPU."""

    def near(self) -> torch.Tensor:
        return torch.as_tensor(self.scores)

    def blocks(self) -> Iterator[ScoreBlock]:
        raise AssertionError("it is at hand as a whole")


@given(cases(), cases(), st.booleans(), st.sampled_from([1, 10, 1 << 26]))
def test_a_matrix_counted_where_it_lies_gives_the_ranks_of_the_loop(
    case: tuple[np.ndarray, naive.Pairs], other: tuple[np.ndarray, naive.Pairs], every: bool, counted: int
) -> None:
    scores, pairs = case
    for_texts = {(i % scores.shape[0], j % scores.shape[1]) for i, j in other[1]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranks_module, "COUNTED", counted)
        i2t, t2i = count_ranks(Near(scores), positives(pairs, scores.shape), positives(for_texts, scores.shape), every)
    assert as_lists(i2t) == naive.ranks(scores, pairs, 0, every)
    assert as_lists(t2i) == naive.ranks(scores, for_texts, 1, every)


def test_a_matrix_counted_where_it_lies_must_be_finite() -> None:
    scores = np.eye(3, dtype=np.float32)
    scores[1, 2] = np.nan
    with pytest.raises(DiptychError, match="image 1 with sentence 2 is nan"):
        count_ranks(Near(scores), positives({(0, 0)}, scores.shape))


@given(cases(), cases(), st.integers(0, 99), st.booleans())
def test_blocks_in_any_cut_and_order_give_the_same(
    case: tuple[np.ndarray, naive.Pairs], other: tuple[np.ndarray, naive.Pairs], seed: int, once: bool
) -> None:
    scores, pairs = case
    for_texts = {(i % scores.shape[0], j % scores.shape[1]) for i, j in other[1]}
    blocks = list(naive.blocks(scores, np.random.default_rng(seed)))
    source = block_source(iter(blocks) if once else blocks, (scores.shape[0], scores.shape[1]))
    i2t, t2i = count_ranks(source, positives(pairs, scores.shape), positives(for_texts, scores.shape))
    assert as_lists(i2t) == naive.ranks(scores, pairs, 0)
    assert as_lists(t2i) == naive.ranks(scores, for_texts, 1)


@given(cases(), st.booleans(), st.sampled_from([0.0, 0.05, 0.4, 5.0]))
def test_rough_guesses_of_the_right_pairs_give_exact_ranks(
    case: tuple[np.ndarray, naive.Pairs], every: bool, off: float
) -> None:
    # 0.05 is within the margin for most, 5.0 for none: then the blocks are gone through again.
    scores, pairs = case
    i2t, t2i = count_ranks(Guessing(scores, off, 0.3), positives(pairs, scores.shape), every=every)
    assert as_lists(i2t) == naive.ranks(scores, pairs, 0, every)
    assert as_lists(t2i) == naive.ranks(scores, pairs, 1, every)


def test_more_near_ties_than_can_be_set_aside_are_counted_in_a_second_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks_module, "ASIDE_LIMIT", 3)
    scores = np.full((4, 8), 0.5, dtype=np.float32)
    owners = np.repeat(np.arange(4), 2)
    i2t, t2i = count_ranks(Guessing(scores, 0.0, 0.1), Positives.from_owners(owners, 4))
    assert i2t.optimistic.tolist() == [1] * 4
    assert i2t.pessimistic.tolist() == [7] * 4
    assert t2i.pessimistic.tolist() == [4] * 8


@given(st.integers(1, 7), st.integers(1, 4), st.integers(0, 99))
def test_vectors_rank_as_their_matrix_of_dot_products(n: int, captions: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    # Whole numbers make float32 products exact, and ties common.
    v, s = rng.integers(-2, 3, (n, 3)).astype(np.float32), rng.integers(-2, 3, (n * captions, 3)).astype(np.float32)
    right = Positives.from_owners(np.repeat(np.arange(n), captions), n)
    ours = count_ranks(EmbeddingSource(torch.from_numpy(v), torch.from_numpy(s)), right)
    matrix = count_ranks(MatrixSource(v @ s.T), right)
    assert [as_lists(r) for r in ours] == [as_lists(r) for r in matrix]


@pytest.mark.parametrize("cached", [1, 7, 40])
def test_rows_counted_at_once_and_threads_do_not_matter(monkeypatch: pytest.MonkeyPatch, cached: int) -> None:
    scores = np.random.default_rng(0).integers(0, 9, (20, 30)).astype(np.float32)
    right = Positives.from_owners(np.arange(30) % 20, 20)
    expected = count_ranks(MatrixSource(scores), right, every=True)
    monkeypatch.setattr(ranks_module, "CACHED", cached)
    for source in (MatrixSource(scores), Guessing(scores, 0.0, 0.1)):
        found = count_ranks(source, right, every=True)
        assert [as_lists(r) for r in found] == [as_lists(r) for r in expected]


def test_strip_height_does_not_change_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    v = torch.nn.functional.normalize(torch.randn(60, 16, generator=generator), dim=1)
    s = torch.nn.functional.normalize(v.repeat_interleave(5, 0) + torch.randn(300, 16, generator=generator), dim=1)
    right = Positives.from_owners(np.repeat(np.arange(60), 5), 60)
    found = []
    for height in (1, 7, 64, 1024):
        monkeypatch.setattr("diptych.evaluation.sources.STRIP", height)
        found.append([as_lists(r) for r in count_ranks(EmbeddingSource(v, s), right)])
    assert all(each == found[0] for each in found)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", ["matrix", "blocks", "iterator"])
def test_a_score_that_is_not_finite_is_refused_by_name(bad: float, kind: str) -> None:
    scores = np.zeros((1500, 3), dtype=np.float32)
    scores[1255, 1] = bad
    strip = Strip(slice(0, 1500), torch.arange(3), torch.from_numpy(scores))
    sources: dict[str, ScoreSource] = {
        "matrix": MatrixSource(scores),
        "blocks": block_source([strip], (1500, 3)),
        "iterator": block_source(iter([strip]), (1500, 3)),
    }
    with pytest.raises(DiptychError, match="image 1255 with sentence 1"):
        count_ranks(sources[kind], Positives.from_owners([0, 1, 2], 1500))


def test_nan_on_the_right_pairs_is_no_perfect_recall() -> None:
    scores = np.zeros((3, 3))
    np.fill_diagonal(scores, np.nan)
    with pytest.raises(DiptychError, match="image 0 with sentence 0 is nan"):
        count_ranks(MatrixSource(scores), Positives.from_owners([0, 1, 2], 3))


def test_huge_finite_scores_are_fine() -> None:
    scores = np.full((2, 2), 3e38, dtype=np.float32)
    i2t, _ = count_ranks(MatrixSource(scores), Positives.from_owners([0, 1], 2))
    assert i2t.pessimistic.tolist() == [2, 2]


def test_blocks_that_leave_pairs_out_are_refused() -> None:
    strip = Strip(slice(0, 1), torch.arange(3), torch.zeros(1, 3))
    with pytest.raises(DiptychError, match="blocks hold 3 pairs; expected 2 x 3"):
        count_ranks(block_source([strip], (2, 3)), Positives.from_owners([0, 1, 1], 2))


def test_double_precision_tells_apart_what_single_cannot() -> None:
    scores = np.array([[1.0, 1.0 + 1e-12]])
    i2t, _ = count_ranks(MatrixSource(scores), Positives.from_pairs([0], [0], (1, 2)))
    assert (i2t.optimistic.tolist(), i2t.pessimistic.tolist()) == ([2], [2])


@given(st.integers(1, 600), st.integers(1, 5), st.integers(0, 9))
def test_counting_true(rows: int, columns: int, seed: int) -> None:
    mask = np.random.default_rng(seed).random((rows, columns)) < 0.9
    assert count_true(mask, 0).tolist() == mask.sum(0).tolist()
    assert count_true(mask, 1).tolist() == mask.sum(1).tolist()
