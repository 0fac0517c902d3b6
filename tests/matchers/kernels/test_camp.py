"""CAMP's kernels beside its plain path, which other tests hold against the paper's formulas."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from diptych.matchers import camp
from diptych.matchers.bounded.calls import score_aligned
from diptych.matchers.bounded.memory import MemoryBudget
from diptych.matchers.camp import CAMP, CAMPConfig
from diptych.matchers.camp_parts import CAMPKept
from diptych.matchers.kept import Kept
from tests.matchers import inputs
from tests.matchers.cases_camp import CASES, IMAGE, WORDS

FUSED = [
    "camp", "camp-without-gates", "camp-without-residual", "camp-without-attention-aggregation", "camp-concat",
    "camp-product", "camp-joint-embedding", "camp-low-dimensional", "camp-scalar-gate", "camp-concat-without-gates",
]  # fmt: skip
PLAIN = ["camp-product-scalar-gate", "camp-gate-fusion-add", "camp-gate-fusion-new-add", "camp-without-fusion"]


@pytest.fixture
def build() -> Callable[[CAMPConfig], CAMP]:
    def make(config: CAMPConfig) -> CAMP:
        torch.manual_seed(3)
        matcher = CAMP(config, inputs.word_tokenizer()).eval()
        for side in (matcher.image_side, matcher.text_side):
            if hasattr(side, "fusion") and side.fusion.bias is not None:
                torch.nn.init.normal_(side.fusion.bias, std=0.3)
        return matcher

    return make


def sides(matcher: CAMP, regions: list[int], words: list[int], extra: int = 0) -> tuple[Kept, Kept]:
    """What is kept of random local vectors, with so many real ones each."""
    kept = []
    for keep, lengths in ((matcher.keep_images, regions), (matcher.keep_texts, words)):
        mask = torch.arange(max(*lengths, 1) + extra) < torch.tensor(lengths).unsqueeze(1)
        vectors = 2 * torch.randn(*mask.shape, matcher.config.dim)
        kept.append(keep(inputs_encoded(vectors, mask)))
    return kept[0], kept[1]


def inputs_encoded(vectors: torch.Tensor, mask: torch.Tensor) -> camp.Encoded:
    return camp.Encoded(vectors, mask, None, vectors)


def fused(matcher: CAMP, images: Kept, texts: Kept, dtype: torch.dtype, patch: pytest.MonkeyPatch) -> torch.Tensor:
    with patch.context() as context, torch.no_grad():
        context.setattr(camp, "fused_dtype", lambda *tensors: dtype)
        with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
            return matcher.logits(images, texts)


@pytest.mark.parametrize("name", FUSED)
def test_kernels_compute_what_the_plain_path_does(
    name: str, build: Callable[[CAMPConfig], CAMP], monkeypatch: pytest.MonkeyPatch
) -> None:
    matcher = build(CASES[name])
    assert matcher.has_kernels()
    images, texts = sides(matcher, [5, 1, 3], [4, 1, 2, 7, 3], extra=2)
    with torch.no_grad():
        expected = matcher.logits(images, texts)
    torch.testing.assert_close(
        fused(matcher, images, texts, torch.float32, monkeypatch), expected, atol=1e-5, rtol=1e-5
    )


@pytest.mark.parametrize("gate", ["vector", "scalar"])
def test_tiles_that_do_not_fit_and_an_item_of_padding_alone(
    gate: str, build: Callable[[CAMPConfig], CAMP], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = CAMPConfig(dim=71, image=IMAGE, text=WORDS, gate=gate)  # type: ignore[arg-type]
    matcher = build(config)
    images, texts = sides(matcher, [37, 0, 1], [17, 1, 0, 2, 3, 4, 5, 6, 7, 8])
    with torch.no_grad():
        expected = matcher.logits(images, texts)
    assert expected.isfinite().all()
    torch.testing.assert_close(
        fused(matcher, images, texts, torch.float32, monkeypatch), expected, atol=2e-5, rtol=2e-5
    )


@pytest.mark.parametrize("gate", ["vector", "scalar"])
def test_half_precision_is_near(
    gate: str, build: Callable[[CAMPConfig], CAMP], monkeypatch: pytest.MonkeyPatch
) -> None:
    matcher = build(CAMPConfig(dim=24, image=IMAGE, text=WORDS, gate=gate, similarity="cosine"))  # type: ignore[arg-type]
    images, texts = sides(matcher, [5, 1, 3], [4, 1, 2])
    with torch.no_grad():
        expected = matcher.logits(images, texts)
    found = fused(matcher, images, texts, torch.float16, monkeypatch)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected, atol=5e-3, rtol=0)


def test_a_score_does_not_depend_on_what_else_is_scored(
    build: Callable[[CAMPConfig], CAMP], monkeypatch: pytest.MonkeyPatch
) -> None:
    matcher = build(CASES["camp"])
    images, texts = sides(matcher, [5, 1, 3], [4, 1, 2])
    whole = fused(matcher, images, texts, torch.float32, monkeypatch)
    alone = fused(matcher, images[[2]], texts[[1]].trim(), torch.float32, monkeypatch)
    torch.testing.assert_close(alone[0, 0], whole[2, 1], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("name", PLAIN)
def test_other_options_take_the_plain_path(
    name: str, build: Callable[[CAMPConfig], CAMP], monkeypatch: pytest.MonkeyPatch
) -> None:
    matcher = build(CASES[name])
    assert not matcher.has_kernels()
    images, texts = sides(matcher, [2, 1], [2, 3])
    assert isinstance(images, CAMPKept)
    with torch.no_grad():
        expected = matcher.logits(images, texts)
    assert torch.equal(fused(matcher, images, texts, torch.float32, monkeypatch), expected)


def test_more_vectors_than_registers_hold_take_the_plain_path(
    build: Callable[[CAMPConfig], CAMP], monkeypatch: pytest.MonkeyPatch
) -> None:
    matcher = build(CASES["camp"])
    images, texts = sides(matcher, [129, 1], [2, 3])
    with torch.no_grad():
        expected = matcher.logits(images, texts)
    monkeypatch.setattr(CAMP, "_fused", None)
    assert torch.equal(fused(matcher, images, texts, torch.float32, monkeypatch), expected)


@pytest.mark.parametrize(("name", "wide"), [("camp", 2), ("camp-concat", 3), ("camp-scalar-gate", 1)])
def test_kernels_hold_tensors_of_one_direction_in_half_precision(
    name: str, wide: int, build: Callable[[CAMPConfig], CAMP], monkeypatch: pytest.MonkeyPatch
) -> None:
    matcher = build(replace(CASES[name], dim=1024))
    plain = matcher.pair_floats(36, 16)
    monkeypatch.setattr(camp, "fused_dtype_on", lambda device: torch.bfloat16)
    floats = matcher.pair_floats(36, 16)
    # Two weights of half precision, in rows of 16 and of 64, count as one number, and so do two of a wide tensor.
    assert wide * 36 * 1024 // 2 + (36 * 16 + 16 * 64) // 2 < floats < 0.7 * plain
    assert matcher.pair_floats(36, 129) > 129 * 1024 * 2
    assert build(CASES[PLAIN[0]]).pair_floats(36, 16) > 3 * 36 * 8


def test_aligned_pairs_are_planned_with_what_they_take_without_kernels(
    build: Callable[[CAMPConfig], CAMP], monkeypatch: pytest.MonkeyPatch
) -> None:
    matcher = build(CASES["camp"])
    images, texts = sides(matcher, [5, 1, 3, 2], [4, 1, 2, 7])
    needed = 4 * matcher.pair_floats(5, 7)

    def fused_dtype_on(device: torch.device) -> torch.dtype | None:
        return torch.bfloat16 if torch.is_autocast_enabled("cpu") else None

    monkeypatch.setattr(camp, "fused_dtype_on", fused_dtype_on)
    calls = []
    score_pairs = matcher.score_pairs

    def noted(a: Kept, b: Kept) -> torch.Tensor:
        calls.append(len(a))
        return score_pairs(a, b)

    monkeypatch.setattr(matcher, "score_pairs", noted)
    budget = MemoryBudget(torch.device("cpu"), 2 * 2 * needed)  # half of it is for a call: two pairs
    every = torch.arange(4)
    score_aligned(matcher, images, every, texts, every, (5, 7), budget, torch.bfloat16)
    assert calls == [2, 2]


def test_sides_that_were_cut(build: Callable[[CAMPConfig], CAMP], monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept of ragged items is cut to groups of like length, which leaves gaps between them in memory."""
    matcher = build(CASES["camp"])
    images, texts = sides(matcher, [5, 1, 3], [4, 1, 2, 3], extra=4)
    images, texts = images.cut(5), texts.cut(4)
    assert not images.mask.is_contiguous()
    with torch.no_grad():
        expected = matcher.logits(images, texts)
    found = fused(matcher, images, texts, torch.float32, monkeypatch)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
