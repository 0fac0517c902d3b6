"""The kernel that keeps the best of each query, beside sorting all scores."""

import math

import pytest
import torch
from torch import Tensor

from diptych.scoring import best_kernel
from diptych.scoring.best_kernel import MOST, Best, BestOnGPU, add_best
from diptych.scoring.blocks import Block

pytestmark = pytest.mark.usefixtures("interpreted")
INFINITY = math.inf
TIED = [-INFINITY, -2.5, -1.0, -0.0, 0.0, 1e-38, 0.5, INFINITY]


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that few scores are several tiles."""
    monkeypatch.setattr(best_kernel, "ALONG_ITEMS", (2, 16))
    monkeypatch.setattr(best_kernel, "ALONG_QUERIES", (4, 8))


def tied(n: int, m: int) -> Tensor:
    """Few different scores, so that most of them tie."""
    return torch.tensor(TIED)[torch.randint(len(TIED), (n, m))]


def sorted_whole(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Highest first, at equal scores the earlier first; -0 and 0 are equal."""
    rows = [sorted(range(len(row)), key=lambda j, r=row: (-r[j], j))[:k] for row in scores.tolist()]
    positions = torch.tensor(rows)
    return scores.gather(1, positions), positions


def in_blocks(scores: Tensor, runs: list[int], groups: list[Tensor], pictures: int, sentences: int) -> None:
    """The best of both directions, of runs of pictures with groups of sentences, beside the sorted whole."""
    n, m = scores.shape
    k, other = min(pictures, n), min(sentences, m)
    best = BestOnGPU({"texts": (m, k), "images": (n, other)}, scores.device)
    start = 0
    for length in runs:
        run = slice(start, start + length)
        for group in groups:
            best.add(Block(run, group, group, scores[run][:, group]))
        start += length
    found = best.found()
    for query, rows, count in (("texts", scores.T, k), ("images", scores, other)):
        expected = sorted_whole(rows, count)
        assert found[query][1].tolist() == expected[1].tolist()  # type: ignore[index]
        assert torch.equal(found[query][0], expected[0])  # type: ignore[index]


@pytest.mark.parametrize(("pictures", "sentences"), [(1, 1), (3, 5), (MOST, 7), (2, MOST)])
def test_ties_in_one_block(pictures: int, sentences: int) -> None:
    in_blocks(tied(19, 23), [19], [torch.arange(23)], pictures, sentences)


@pytest.mark.parametrize("k", [1, 4, MOST])
def test_blocks_whose_sentences_come_in_any_order(k: int) -> None:
    """Some of a single sentence or picture, fewer than are looked for."""
    order = torch.randperm(29)
    groups = [order[:1], order[1:4], order[4:24], order[24:]]
    in_blocks(tied(17, 29), [1, 9, 2, 5], groups, k, k)


def test_random_scores_in_tiles_that_hold_them_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(best_kernel, "ALONG_ITEMS", (1, 1024))
    monkeypatch.setattr(best_kernel, "ALONG_QUERIES", (8, 128))
    in_blocks(torch.randn(6, 9), [4, 2], [torch.arange(9)], 6, 3)


def test_random_scores_in_many_blocks() -> None:
    order = torch.randperm(40)
    in_blocks(torch.randn(21, 40), [5, 5, 5, 6], list(order.split(11)), 6, 3)


def test_all_equal_or_all_negative_infinity() -> None:
    for value in (0.25, -INFINITY, INFINITY):
        in_blocks(torch.full((9, 12), value), [4, 5], [torch.arange(6, 12), torch.arange(6)], 4, 16)


def test_zeros_of_both_signs_are_equal() -> None:
    scores = torch.tensor([[-0.0, 0.0, -0.0, -1e-45, 1e-45]])
    in_blocks(scores, [1], [torch.arange(5)], 1, 5)
    in_blocks(scores.T.contiguous(), [3, 2], [torch.arange(1)], 5, 1)


@pytest.mark.parametrize("k", [1, 5, MOST])
@pytest.mark.parametrize("along_items", [True, False])
def test_many_items_of_few_queries_are_looked_at_in_parts(
    k: int, along_items: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Along whichever lies side by side in memory."""
    monkeypatch.setattr(best_kernel, "ENOUGH", 12)
    scores = tied(5, 333)
    laid = scores if along_items else scores.T.contiguous().T
    rows, places = torch.tensor([3, 0, 6, 5, 1]), torch.randperm(1000)[:333]
    kept, before = torch.full((8 * k,), 7.0), torch.full((8 * k,), -1)
    # What was best before: one item that comes after all others at equal scores.
    for row in rows.tolist():
        kept[row * k], before[row * k] = 0.5, 2000
    add_best(laid, rows, places, Best(kept, before, k))
    for query, row in enumerate(rows.tolist()):
        all_of = [(float(s), int(p)) for s, p in zip(scores[query], places, strict=True)] + [(0.5, 2000)]
        expected = sorted(all_of, key=lambda pair: (-pair[0], pair[1]))[:k]
        assert before[row * k : (row + 1) * k].tolist() == [place for _, place in expected]
        assert kept[row * k : (row + 1) * k].tolist() == [score for score, _ in expected]
    for untouched in (2, 4, 7):
        assert (kept[untouched * k : (untouched + 1) * k] == 7.0).all()


def test_fewer_items_than_are_kept_leave_the_last_places_empty() -> None:
    kept, places = torch.empty(2 * 4), torch.full((2 * 4,), 99)
    add_best(torch.tensor([[0.5, 2.0], [-3.0, -INFINITY]]), 0, 10, Best(kept, places, 4, fresh=True))
    assert places.view(2, 4).tolist() == [[11, 10, -1, -1], [10, 11, -1, -1]]
    add_best(torch.tensor([[1.0], [-3.0]]), 0, 5, Best(kept, places, 4))
    assert places.view(2, 4).tolist() == [[11, 5, 10, -1], [5, 10, 11, -1]]
    assert kept.view(2, 4)[:, :3].tolist() == [[2.0, 1.0, 0.5], [-3.0, -3.0, -INFINITY]]
