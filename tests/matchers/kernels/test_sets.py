"""The kernel of DivE's sets beside its plain path, which other tests hold against the paper's formulas."""

from dataclasses import replace
from typing import get_args

import pytest
import torch
from torch import Tensor

from diptych.encoders.encoded import l2
from diptych.matchers import dive
from diptych.matchers.catalog import build_matcher
from diptych.matchers.dive import DivE, DivEKept
from diptych.matchers.kept import Kept
from diptych.matchers.kernels.sets import Similarity
from tests.matchers import inputs
from tests.matchers.cases_dive import DIVE

pytestmark = pytest.mark.usefixtures("interpreted")
SIMILARITIES = get_args(Similarity)
# A tile is 128 by 256 vectors: 16 by 32 sets of 8.
SHAPES = [(4, 3, 5, 8), (2, 1, 1, 64), (8, 17, 33, 24), (16, 9, 3, 70), (4, 33, 2, 130)]


def build(**options: object) -> DivE:
    torch.manual_seed(3)
    matcher = build_matcher(replace(DIVE, **{"slots": 4, **options}), inputs.word_tokenizer())
    assert isinstance(matcher, DivE)
    if matcher.config.similarity == "mp":
        with torch.no_grad():
            matcher.mp_a.fill_(3.0)
            matcher.mp_b.fill_(-0.4)
    return matcher.eval()


def sets(n: int, size: int, dim: int, extra: int = 0) -> DivEKept:
    """Sets of random unit vectors; the first is an element many times over, and what lies behind a set is garbage."""
    vectors = l2(torch.randn(n, size + extra, dim))
    vectors[0] = vectors[0, 0]
    vectors[:, size:] = float("nan")
    return DivEKept(vectors, torch.arange(size + extra).expand(n, -1) < size, vectors)


def plain(matcher: DivE, images: Kept, texts: Kept) -> Tensor:
    with torch.no_grad():
        return matcher.score(images, texts)


def fused(
    matcher: DivE, images: Kept, texts: Kept, dtype: torch.dtype, patch: pytest.MonkeyPatch, *, logits: bool = False
) -> Tensor:
    with patch.context() as context, torch.no_grad():
        context.setattr(dive, "fused_dtype", lambda *tensors: dtype)
        context.setattr(DivE, "_similarity", None)
        with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
            scores = (matcher.logits if logits else matcher.score)(images, texts)
    assert scores.dtype == torch.float32
    return scores


@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize(("size", "n", "m", "dim"), SHAPES)
def test_the_kernel_computes_what_the_plain_path_does(
    similarity: Similarity, size: int, n: int, m: int, dim: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    matcher = build(dim=8, slots=size, similarity=similarity)
    assert matcher.has_kernels() == (similarity != "mp")  # whose logits are plain
    images, texts = sets(n, size, dim), sets(m, size, dim, extra=3)
    expected = plain(matcher, images, texts)
    found = fused(matcher, images, texts, torch.float32, monkeypatch)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("alpha", [1.0, 16.0, 40.0])
def test_sets_that_are_opposite_stay_finite(alpha: float, monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = build(dim=8, alpha=alpha)
    images = sets(3, 4, 8)
    texts = DivEKept(-images.vectors[[0]], images.mask[[0]], images.slots[[0]])
    found = fused(matcher, images, texts, torch.float32, monkeypatch)
    torch.testing.assert_close(found, plain(matcher, images, texts), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_half_precision_is_near(similarity: Similarity, monkeypatch: pytest.MonkeyPatch) -> None:
    """In float16: Triton's interpreter multiplies no bfloat16."""
    matcher = build(dim=24, similarity=similarity)
    images, texts = sets(5, 4, 24), sets(7, 4, 24)
    found = fused(matcher, images, texts, torch.float16, monkeypatch)
    torch.testing.assert_close(found, plain(matcher, images, texts), atol=2e-3, rtol=0)


@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_a_score_depends_on_its_pair_alone(similarity: Similarity, monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = build(dim=70, slots=8, similarity=similarity)
    images, texts = sets(18, 8, 70), sets(35, 8, 70)
    whole = fused(matcher, images, texts, torch.float32, monkeypatch)
    alone = fused(matcher, images[[17]], texts[[33]], torch.float32, monkeypatch)
    torch.testing.assert_close(alone[0, 0], whole[17, 33], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("similarity", ["smooth-chamfer", "chamfer", "mil"])
def test_logits_are_the_scores(similarity: Similarity, monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = build(dim=8, similarity=similarity)
    images, texts = sets(3, 4, 8), sets(2, 4, 8)
    found = fused(matcher, images, texts, torch.float32, monkeypatch, logits=True)
    torch.testing.assert_close(found, plain(matcher, images, texts), atol=1e-5, rtol=1e-5)


def test_logits_of_the_match_probability_are_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = build(dim=8, similarity="mp")
    images, texts = sets(3, 4, 8), sets(2, 4, 8)
    with torch.no_grad():
        expected = matcher.logits(images, texts)
    monkeypatch.setattr(dive, "fused_dtype", lambda *tensors: torch.float32)
    with torch.no_grad():
        assert torch.equal(matcher.logits(images, texts), expected)
    torch.testing.assert_close(expected.sigmoid(), plain(matcher, images, texts), atol=1e-5, rtol=1e-5)


def test_none_of_either_side(monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = build(dim=8)
    images, texts = sets(3, 4, 8), sets(2, 4, 8)
    assert fused(matcher, images[:0], texts, torch.float32, monkeypatch).shape == (0, 2)
    assert fused(matcher, images, texts[:0], torch.float32, monkeypatch).shape == (3, 0)


@pytest.mark.parametrize("options", [{"slots": 1}, {"slots": 3}, {"slots": 32}, {"alpha": 41.0}])
def test_other_options_take_the_plain_path(options: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = build(dim=8, **options)
    assert not matcher.has_kernels()
    images, texts = sets(3, matcher.config.slots, 8), sets(2, matcher.config.slots, 8)
    expected = plain(matcher, images, texts)
    monkeypatch.setattr(dive, "fused_dtype", lambda *tensors: torch.float32)
    monkeypatch.setattr(DivE, "_fused", None)
    assert torch.equal(plain(matcher, images, texts), expected)


def test_only_smooth_chamfer_minds_how_sharp_it_is() -> None:
    assert build(dim=8, alpha=41.0, similarity="mil").has_kernels()


def test_the_kernel_writes_scores_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    matcher, odd = build(dim=8), build(dim=8, slots=3)
    assert matcher.pair_floats(4, 4) == 4 * 4 * 4
    monkeypatch.setattr(dive, "fused_dtype_on", lambda device: torch.bfloat16)
    assert matcher.pair_floats(4, 4) == 1
    assert odd.pair_floats(3, 3) == 4 * 3 * 3
