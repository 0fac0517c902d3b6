"""The same on a GPU, where memory really runs out. Skipped where there is none."""

from collections.abc import Callable, Iterator

import pytest
import torch

from diptych.evaluation.positives import Positives
from diptych.evaluation.ranks import count_ranks
from diptych.evaluation.sources import MatcherSource, MatrixSource
from diptych.matchers.base import Matcher
from diptych.matchers.bounded import groups, memory
from diptych.matchers.bounded.memory import free_memory
from diptych.matchers.kept import Kept
from diptych.scoring.blocks import score_all, score_blocks
from diptych.scoring.candidates import Query, score_candidates
from diptych.scoring.top_k import top_k, top_k_both
from tests.scoring.test_blocks import random_side

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
GPU = torch.device("cuda")
SIDES: tuple[Query, Query] = ("texts", "images")


@pytest.fixture
def small_card() -> Iterator[None]:
    """A card on which PyTorch may take 256 MiB in all."""
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction((256 << 20) / torch.cuda.mem_get_info()[1])
    yield
    torch.cuda.set_per_process_memory_fraction(1.0)


def test_sides_may_stay_on_the_cpu_in_half_precision(matcher: Matcher, sides: tuple[Kept, Kept]) -> None:
    expected = score_all(matcher, *sides)
    images, texts = (side.to("cpu") for side in sides)
    matcher.to(GPU)
    try:
        torch.testing.assert_close(score_all(matcher, images, texts), expected, atol=1e-4, rtol=1e-3)
        near = score_all(matcher, images, texts, dtype=torch.bfloat16)
        torch.testing.assert_close(near, expected, atol=0.15, rtol=0.15)
        found, positions = top_k(matcher, images, texts, 3, "texts")
        again = score_candidates(matcher, texts, images, positions, "texts")
        torch.testing.assert_close(again, found, atol=1e-4, rtol=1e-3)
    finally:
        matcher.to("cpu")


def test_no_block_waits_for_the_card(
    matcher: Matcher, sides: tuple[Kept, Kept], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "WORTHWHILE", 1)
    images, texts = (side.to(GPU) for side in sides)
    matcher.to(GPU)
    try:
        blocks = score_blocks(matcher, images, texts, memory=1 << 30)
        held = [next(blocks)]  # the sides were grouped by their lengths, which had to be looked at
        torch.cuda.set_sync_debug_mode("error")
        held += list(blocks)
        torch.cuda.set_sync_debug_mode("default")
        assert all(block.scores.is_cuda for block in held)
    finally:
        torch.cuda.set_sync_debug_mode("default")
        matcher.to("cpu")


def test_ranks_and_top_k_are_those_of_the_matrix(matcher: Matcher, sides: tuple[Kept, Kept]) -> None:
    images, texts = (side.to(GPU) for side in sides)
    matcher.to(GPU)
    try:
        right = Positives.from_owners([0, 1, 2, 3, 4, 5, 6, 0, 1], 7)
        source = MatcherSource(matcher, images, texts)
        near = source.near()
        assert near is not None
        assert near.is_cuda
        expected = count_ranks(MatrixSource(near.cpu()), right)
        for found, told in zip(count_ranks(MatrixSource(near), right), expected, strict=True):
            assert found.optimistic.tolist() == told.optimistic.tolist()
            assert found.pessimistic.tolist() == told.pessimistic.tolist()
        both = top_k_both(matcher, images, texts, 3, 4)
        for ways, query, k in (both[0], SIDES[0], 3), (both[1], SIDES[1], 4):
            alone = top_k(matcher, images, texts, k, query)
            assert ways[1].tolist() == alone[1].tolist()
    finally:
        matcher.to("cpu")


def test_blocks_are_halved_when_the_card_is_full(
    build: Callable[[str], Matcher], small_card: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(memory.ENOUGH, "cuda", 1 << 40)
    monkeypatch.setattr(memory, "MOST_PAIRS", 1 << 40)
    matcher = build("scan-t2i-mean").to(GPU)
    images, texts = random_side(torch.full((300,), 36), 36, gram=True), random_side(torch.full((400,), 20), 20)
    calls = 0
    score = matcher.score

    def counted(a: Kept, b: Kept) -> torch.Tensor:
        nonlocal calls
        calls += 1
        return score(a, b)

    monkeypatch.setattr(matcher, "score", counted)
    scores = score_all(matcher, images, texts, memory=1 << 40)
    assert calls > 4
    matcher.to("cpu")
    torch.testing.assert_close(scores, score_all(matcher, images, texts), atol=1e-4, rtol=1e-3)


def test_free_memory_counts_what_pytorch_holds_unused() -> None:
    before = free_memory(GPU)
    tensor = torch.empty(256 << 20, dtype=torch.uint8, device=GPU)
    assert before - free_memory(GPU) >= 250 << 20
    del tensor
    assert abs(before - free_memory(GPU)) < 32 << 20
