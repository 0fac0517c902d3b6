import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from diptych.common.errors import DiptychError
from diptych.evaluation.encode import encode_collection
from diptych.evaluation.evaluate import evaluate_matcher
from diptych.evaluation.rerank import evaluate_reranked
from diptych.matchers.base import Matcher
from diptych.scoring import score_all
from diptych.training.start import build_for
from tests.training import toy

DATA = toy.collection()


def matcher(seed: int) -> Matcher:
    torch.manual_seed(seed)
    return build_for(toy.recipe(), toy.splits()).eval()


def naive(fast: np.ndarray, slow: np.ndarray, right: np.ndarray, depth: float) -> list[int]:
    """Ranks of queries (rows), by sorting: the fast order, its head put into the slow order."""
    ranks = []
    for f, s, r in zip(fast, slow, right, strict=True):
        order = sorted(range(len(f)), key=lambda i: -f[i])
        head = order[: math.ceil(depth * len(f))]
        order = sorted(head, key=lambda i: -s[i]) + order[len(head) :]
        ranks.append(1 + min(order.index(i) for i in np.flatnonzero(r)))
    return ranks


@pytest.mark.parametrize("depth", [0.1, 0.5, 1.0])
def test_ranks_are_those_of_sorting_twice(depth: float) -> None:
    fast, slow = matcher(1), matcher(2)
    result = evaluate_reranked(fast, slow, DATA, depth, fusion="replace")
    scores = [score_all(m, *encode_collection(m, DATA)).numpy() for m in (fast, slow)]
    right = DATA.captions()[1][None, :] == np.arange(len(DATA))[:, None]
    # Some sentences of the toy data are the same, so sorting breaks ties that the ranks leave open.
    for direction, ranks in (
        ("i2t", naive(scores[0], scores[1], right, depth)),
        ("t2i", naive(scores[0].T, scores[1].T, right.T, depth)),
    ):
        assert (result.per_query[f"{direction}/optimistic"] <= ranks).all()
        assert (result.per_query[f"{direction}/pessimistic"] >= ranks).all()
    assert result.figures["seconds/second"] > 0


def test_rescoring_all_is_the_slow_matcher_alone() -> None:
    slow = matcher(2)
    whole = evaluate_matcher(slow, DATA)
    assert evaluate_reranked(matcher(1), slow, DATA, 1.0, fusion="replace")["rsum"] == pytest.approx(whole["rsum"])


def test_the_sum_of_a_model_with_itself_changes_nothing() -> None:
    fast = matcher(1)
    alone = evaluate_matcher(fast, DATA)
    assert evaluate_reranked(fast, fast, DATA, 1.0, fusion="sum")["rsum"] == pytest.approx(alone["rsum"])


def test_fused_ranks_are_those_of_sorting_the_sums() -> None:
    fast, slow = matcher(1), matcher(2)
    result = evaluate_reranked(fast, slow, DATA, 1.0, fusion="sum")
    scores = [score_all(m, *encode_collection(m, DATA)).numpy().astype(np.float64) for m in (fast, slow)]
    right = DATA.captions()[1][None, :] == np.arange(len(DATA))[:, None]
    summed = sum((s - s.mean(1, keepdims=True)) / s.std(1, keepdims=True) for s in scores)
    ranks = naive(summed, summed, right, 1.0)
    assert (result.per_query["i2t/optimistic"] <= ranks).all()
    assert (result.per_query["i2t/pessimistic"] >= ranks).all()


def test_a_depth_that_is_no_part_is_refused() -> None:
    with pytest.raises(DiptychError, match="depth"):
        evaluate_reranked(matcher(1), matcher(2), DATA, 0.0)


@pytest.mark.parametrize("depth", [0.1, 1.0])
def test_a_picture_without_sentences_asks_nothing_and_is_there_to_be_found(depth: float) -> None:
    items = [replace(item, sentences=()) if i in (0, 5, len(DATA) - 1) else item for i, item in enumerate(DATA.items)]
    data = replace(DATA, items=items)
    fast, slow = matcher(1), matcher(2)
    result = evaluate_reranked(fast, slow, data, depth, fusion="replace")
    scores = [score_all(m, *encode_collection(m, data)).numpy() for m in (fast, slow)]
    right = data.captions()[1][None, :] == np.arange(len(data))[:, None]
    asks = right.any(1)
    assert result.per_query["i2t/query"].tolist() == np.flatnonzero(asks).tolist()
    assert result.images == len(data)
    for direction, ranks in (
        ("i2t", naive(scores[0][asks], scores[1][asks], right[asks], depth)),
        ("t2i", naive(scores[0].T, scores[1].T, right.T, depth)),
    ):
        assert (result.per_query[f"{direction}/optimistic"] <= ranks).all()
        assert (result.per_query[f"{direction}/pessimistic"] >= ranks).all()
    if depth == 1.0:
        assert result["rsum"] == pytest.approx(evaluate_matcher(slow, data)["rsum"])
