"""Each query with its own candidates, for every matcher."""

from typing import Literal

import pytest
import torch
from torch import Tensor

from diptych.common.errors import DiptychError
from diptych.matchers.base import Matcher
from diptych.matchers.bounded import groups, memory
from diptych.matchers.kept import Kept
from diptych.scoring import candidates as candidates_module
from diptych.scoring.candidates import score_candidates
from tests.matchers import inputs

CLOSE = {"atol": 2e-5, "rtol": 1e-4}
Sides = tuple[Kept, Kept]


def ask(sides: Sides, whole: Tensor, query: Literal["texts", "images"]) -> tuple[Kept, Kept, Tensor, Tensor]:
    """Queries, items, candidates with gaps and repeats, and the scores they should get."""
    images, texts = sides
    queries, items, scores = (images, texts, whole) if query == "images" else (texts, images, whole.T)
    candidates = torch.randint(-1, len(items), (len(queries), 5))
    candidates[1] = -1
    expected = scores.gather(1, candidates.clamp(min=0)).masked_fill(candidates < 0, float("-inf"))
    return queries, items, candidates, expected


@pytest.mark.parametrize(("query", "memory"), [("texts", 100_000), ("images", None)])
def test_candidates_score_as_in_the_matrix(
    matcher: Matcher,
    sides: Sides,
    whole: Tensor,
    query: Literal["texts", "images"],
    memory: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(groups, "WORTHWHILE", 2)
    queries, items, candidates, expected = ask(sides, whole, query)
    scores = score_candidates(matcher, queries, items, candidates, query, memory=memory)
    torch.testing.assert_close(scores, expected, **CLOSE)


def test_chunks_are_halved_until_they_fit(
    matcher: Matcher, sides: Sides, whole: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    score_pairs = matcher.score_pairs
    failed = 0

    def limited(images: Kept, texts: Kept) -> Tensor:
        nonlocal failed
        if len(images) > 3:
            failed += 1
            raise RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory")
        return score_pairs(images, texts)

    monkeypatch.setattr(matcher, "score_pairs", limited)
    queries, items, candidates, expected = ask(sides, whole, "texts")
    torch.testing.assert_close(score_candidates(matcher, queries, items, candidates, "texts"), expected, **CLOSE)
    assert 0 < failed <= 5


@pytest.fixture
def vse(build: object) -> Matcher:
    return build("vse++")  # type: ignore[operator,no-any-return]


@pytest.fixture
def two_sides() -> Sides:
    mask = torch.ones(3, 1, dtype=torch.bool)
    return Kept(torch.randn(3, 1, 8), mask), Kept(torch.randn(4, 1, 8), mask[[0, 0, 0, 0]])


def test_without_any_candidate_all_is_minus_infinity(vse: Matcher, two_sides: Sides) -> None:
    images, texts = two_sides
    assert (score_candidates(vse, texts, images, torch.full((4, 2), -1), "texts") == float("-inf")).all()
    assert score_candidates(vse, texts, images, torch.empty(4, 0, dtype=torch.int64), "texts").shape == (4, 0)


@pytest.mark.parametrize(
    ("candidates", "message"),
    [
        (torch.full((4, 2), 3), "positions from 0 to 2"),
        (torch.full((4, 2), -2), "positions from 0 to 2"),
        (torch.zeros(3, 2, dtype=torch.int64), r"shape \(4, c\)"),
        (torch.zeros(4, dtype=torch.int64), r"shape \(4, c\)"),
        (torch.zeros(4, 2), "int64"),
    ],
)
def test_wrong_candidates_are_named(vse: Matcher, two_sides: Sides, candidates: Tensor, message: str) -> None:
    images, texts = two_sides
    with pytest.raises(DiptychError, match=message):
        score_candidates(vse, texts, images, candidates, "texts")


def test_a_wrong_side_is_named(vse: Matcher, two_sides: Sides) -> None:
    images, texts = two_sides
    with pytest.raises(DiptychError, match="query: expected 'texts' or 'images', got 'words'"):
        score_candidates(vse, texts, images, torch.zeros(4, 1, dtype=torch.int64), "words")  # type: ignore[arg-type]


@pytest.mark.parametrize("query", ["texts", "images"])
@pytest.mark.parametrize("memory", [1, 30_000, None])
def test_candidates_that_all_queries_share_score_as_in_the_matrix(
    matcher: Matcher,
    sides: Sides,
    whole: Tensor,
    query: Literal["texts", "images"],
    memory: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In any order, some several times and with gaps; of a single query, too."""
    monkeypatch.setattr(groups, "WORTHWHILE", 2)
    images, texts = sides
    queries, items, scores = (images, texts, whole) if query == "images" else (texts, images, whole.T)
    shared = torch.tensor([3, -1, 0, 6, 3, 1, -1, 5])
    for rows in (slice(0, 1), slice(3, 4), slice(0, 5)):
        expected = scores[rows][:, shared].masked_fill(shared < 0, float("-inf"))
        asked = queries[rows]
        found = score_candidates(matcher, asked, items, shared.expand(len(asked), -1), query, memory=memory)
        torch.testing.assert_close(found, expected, **CLOSE)
        assert found.is_contiguous()


def test_one_query_is_one_call_of_the_matrix_and_nothing_is_asked_of_memory(
    build: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    matcher: Matcher = build("camp")  # type: ignore[operator]
    with matcher.inference():
        images, texts = inputs.kept_images(matcher, extra=2), inputs.kept_texts(matcher)
        expected = matcher.score(images, texts)
    calls = []
    score = matcher.score

    def noted(a: Kept, b: Kept) -> Tensor:
        calls.append((len(a), len(b)))
        return score(a, b)

    monkeypatch.setattr(matcher, "score", noted)
    monkeypatch.setattr(matcher, "score_pairs", None)
    monkeypatch.setattr(memory, "free_memory", None)
    found = score_candidates(matcher, texts[2:3], images, torch.tensor([[4, 1, 2]]), "texts")
    torch.testing.assert_close(found[0], expected[[4, 1, 2], 2], **CLOSE)
    assert calls == [(3, 1)]


def test_what_does_not_fit_at_once_is_scored_pair_by_pair(build: object, monkeypatch: pytest.MonkeyPatch) -> None:
    matcher: Matcher = build("camp")  # type: ignore[operator]
    with matcher.inference():
        images, texts = inputs.kept_images(matcher), inputs.kept_texts(matcher)
        expected = matcher.score(images, texts)
    monkeypatch.setattr(candidates_module, "move", lambda *args: None)
    found = score_candidates(matcher, texts[2:3], images, torch.tensor([[4, 1, 2]]), "texts")
    torch.testing.assert_close(found[0], expected[[4, 1, 2], 2], **CLOSE)
