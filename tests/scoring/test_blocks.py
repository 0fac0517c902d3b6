"""Blocked equals whole, for every matcher, however little memory there is."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from diptych.common.errors import DiptychError
from diptych.matchers.base import Matcher
from diptych.matchers.bounded import groups
from diptych.matchers.kept import Kept
from diptych.scoring.blocks import score_all, score_blocks

CLOSE = {"atol": 2e-5, "rtol": 1e-4}
Sides = tuple[Kept, Kept]


def limit_score(matcher: Matcher, monkeypatch: pytest.MonkeyPatch, pairs: int) -> list[tuple[int, int]]:
    """Let memory run out above so many pairs; the shapes of all calls are noted."""
    calls = []
    score = matcher.score

    def limited(images: Kept, texts: Kept) -> Tensor:
        calls.append((len(images), len(texts)))
        if len(images) * len(texts) > pairs:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return score(images, texts)

    monkeypatch.setattr(matcher, "score", limited)
    return calls


@pytest.mark.parametrize("memory", [1, 30_000, None])
def test_blocked_equals_whole(
    matcher: Matcher, sides: Sides, whole: Tensor, memory: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "WORTHWHILE", 2)
    scores = score_all(matcher, *sides, memory=memory)
    assert scores.dtype == torch.float32
    torch.testing.assert_close(scores, whole, **CLOSE)


def test_blocks_are_halved_until_they_fit(
    matcher: Matcher, sides: Sides, whole: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = 5
    calls = limit_score(matcher, monkeypatch, pairs)
    torch.testing.assert_close(score_all(matcher, *sides), whole, **CLOSE)
    assert max(n * m for n, m in calls) > pairs
    # Once it has run out, later blocks are planned smaller: 63 pairs are halved four times at most.
    assert sum(n * m > pairs for n, m in calls) <= 4


def test_every_pair_comes_once_and_runs_of_pictures_in_order(matcher: Matcher, sides: Sides, whole: Tensor) -> None:
    seen = torch.zeros_like(whole)
    starts = []
    for block in score_blocks(matcher, *sides, memory=20_000):
        starts.append(block.images.start)
        assert block.scores.shape == (block.images.stop - block.images.start, len(block.texts))
        seen[block.images, block.texts] += 1
        torch.testing.assert_close(block.scores, whole[block.images, block.texts], **CLOSE)
    assert starts == sorted(starts)
    assert (seen == 1).all()


def test_bfloat16_is_near(matcher: Matcher, sides: Sides, whole: Tensor) -> None:
    scores = score_all(matcher, *sides, dtype=torch.bfloat16)
    assert scores.dtype == torch.float32
    torch.testing.assert_close(scores, whole, atol=0.15, rtol=0.15)


def test_what_is_stored_in_half_precision_is_scored_in_full(matcher: Matcher, sides: Sides) -> None:
    stored = [side.to(dtype=torch.float16) for side in sides]
    with matcher.inference():
        expected = matcher.score(*(side.to(dtype=torch.float32) for side in stored))
    torch.testing.assert_close(score_all(matcher, *stored, memory=30_000), expected, **CLOSE)


@pytest.fixture
def scan(build: Callable[[str], Matcher]) -> Matcher:
    return build("scan-t2i-mean")


def test_padding_is_not_computed(scan: Matcher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "WORTHWHILE", 1)
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(1, 30, (60,), generator=generator)
    counts = torch.randint(1, 20, (40,), generator=generator)
    texts, images = random_side(lengths, 50), random_side(counts, 36, gram=True)
    shapes = []
    score = scan.score

    def noted(a: Kept, b: Kept) -> Tensor:
        shapes.append((*a.mask.shape, *b.mask.shape))
        return score(a, b)

    monkeypatch.setattr(scan, "score", noted)
    scores = score_all(scan, images, texts)
    with scan.inference():
        torch.testing.assert_close(scores, score(images, texts), **CLOSE)
    computed = sum(n * r * m * w for n, r, m, w in shapes)
    needed = int(lengths.sum() * counts.sum())
    assert needed <= computed < 1.4 * needed
    assert 3 * computed < 40 * 36 * 60 * 50


def random_side(lengths: Tensor, longest: int, gram: bool = False) -> Kept:
    from diptych.matchers.scan import Attended

    mask = torch.arange(longest) < lengths.unsqueeze(1)
    vectors = torch.nn.functional.normalize(torch.randn(len(lengths), longest, 8), dim=-1) * mask.unsqueeze(-1)
    return Attended(vectors, mask, vectors @ vectors.transpose(1, 2)) if gram else Kept(vectors, mask)


def test_memory_bounds_the_work_of_a_call(scan: Matcher, monkeypatch: pytest.MonkeyPatch) -> None:
    images, texts = random_side(torch.full((30,), 6), 6, gram=True), random_side(torch.arange(1, 41), 40)
    largest = 0
    score = scan.score

    def noted(a: Kept, b: Kept) -> Tensor:
        nonlocal largest
        largest = max(largest, 4 * len(a) * len(b) * scan.pair_floats(a.mask.shape[1], b.mask.shape[1]))
        return score(a, b)

    monkeypatch.setattr(scan, "score", noted)
    for memory in (20_000, 200_000, 2_000_000):
        largest = 0
        score_all(scan, images, texts, memory=memory)
        assert memory / 20 < largest <= memory / 2


def test_a_memory_mapped_side_is_read_block_by_block(scan: Matcher, tmp_path: Path) -> None:
    images, texts = random_side(torch.tensor([3, 6, 1, 2]), 6, gram=True), random_side(torch.arange(1, 41), 40)
    mapped = np.memmap(tmp_path / "vectors", dtype=np.float16, mode="w+", shape=tuple(texts.vectors.shape))
    mapped[:] = texts.vectors.half().numpy()
    mapped.flush()
    stored = Kept(torch.from_numpy(np.memmap(tmp_path / "vectors", np.float16, "r+", 0, mapped.shape)), texts.mask)
    with scan.inference():
        expected = scan.score(images, stored.to(dtype=torch.float32))
    torch.testing.assert_close(score_all(scan, images, stored, memory=50_000), expected, **CLOSE)


def test_between_blocks_gradients_and_modes_are_the_callers(scan: Matcher) -> None:
    images, texts = random_side(torch.tensor([3, 6]), 6, gram=True), random_side(torch.arange(1, 11), 10)
    scan.train()
    for block in score_blocks(scan, images, texts, memory=5_000, dtype=torch.bfloat16):
        assert scan.training
        assert torch.is_grad_enabled()
        assert not torch.is_inference_mode_enabled()
        assert not torch.is_autocast_enabled("cpu")
        block.scores.mul_(2)


class Watched(Tensor):
    """Scores that note when one of them is looked at, or copied elsewhere: on a GPU everything would wait for it."""

    looks: ClassVar[list[str]] = []

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = getattr(func, "__name__", str(func))
        place = [*args[1:], *(kwargs or {}).values()]
        if name in ("cpu", "item", "tolist", "numpy", "nonzero", "__bool__", "__int__", "__float__") or (
            name == "to" and any(isinstance(x, str | torch.device) for x in place)
        ):
            cls.looks.append(name)
        return super().__torch_function__(func, types, args, kwargs or {})


@pytest.mark.parametrize("ragged", [False, True])
def test_blocks_do_not_wait_for_their_scores(scan: Matcher, ragged: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = torch.tensor([3, 6, 2, 1, 6]) if ragged else torch.full((5,), 6)
    monkeypatch.setattr(groups, "WORTHWHILE", 1)
    images, texts = random_side(counts, 6, gram=True), random_side(torch.arange(1, 11), 10)
    score = scan.score
    monkeypatch.setattr(scan, "score", lambda a, b: score(a, b).as_subclass(Watched))
    Watched.looks.clear()
    blocks = list(score_blocks(scan, images, texts, memory=20_000))
    assert len(blocks) > 4
    assert all(isinstance(block.scores, Watched) for block in blocks)
    assert Watched.looks == []
    blocks[0].scores.sum().item()  # it would have been noted
    assert Watched.looks == ["item"]


def test_no_pictures_or_no_sentences_give_no_blocks(scan: Matcher) -> None:
    images, texts = random_side(torch.tensor([3, 6]), 6, gram=True), random_side(torch.arange(1, 11), 10)
    assert list(score_blocks(scan, images[:0], texts)) == []
    assert score_all(scan, images, texts[:0]).shape == (2, 0)


def test_one_pair_that_does_not_fit_is_an_error(scan: Matcher, monkeypatch: pytest.MonkeyPatch) -> None:
    images, texts = random_side(torch.tensor([3, 6]), 6, gram=True), random_side(torch.arange(1, 11), 10)
    limit_score(scan, monkeypatch, 0)
    with pytest.raises(DiptychError, match="memory ran out on cpu for one picture"):
        score_all(scan, images, texts)


def test_other_errors_are_not_taken_for_want_of_memory(scan: Matcher, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(images: Kept, texts: Kept) -> Tensor:
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    monkeypatch.setattr(scan, "score", broken)
    images, texts = random_side(torch.tensor([3, 6]), 6, gram=True), random_side(torch.arange(1, 11), 10)
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        score_all(scan, images, texts)


def test_runs_of_pictures_are_halved_when_they_do_not_fit(scan: Matcher, monkeypatch: pytest.MonkeyPatch) -> None:
    images, texts = random_side(torch.tensor([3, 6, 2, 1, 6]), 6, gram=True), random_side(torch.arange(1, 11), 10)
    expected = score_all(scan, images, texts)
    move = Kept.to

    def limited(self: Kept, device: torch.device | None = None, dtype: torch.dtype | None = None) -> Kept:
        if len(self) > 2 and dtype is None:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return move(self, device, dtype)

    monkeypatch.setattr(Kept, "to", limited)
    blocks = list(score_blocks(scan, images, texts))
    assert {(b.images.start, b.images.stop) for b in blocks} == {(0, 2), (2, 4), (4, 5)}
    for block in blocks:
        torch.testing.assert_close(block.scores, expected[block.images, block.texts], **CLOSE)


def test_a_type_that_cannot_be_scored_in_is_an_error(scan: Matcher) -> None:
    images, texts = random_side(torch.tensor([3]), 6, gram=True), random_side(torch.tensor([2]), 10)
    with pytest.raises(DiptychError, match="dtype: expected float32, bfloat16 or float16"):
        score_all(scan, images, texts, dtype=torch.int8)
