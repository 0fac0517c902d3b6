"""SCAN's kernels beside its plain path, which other tests hold against the paper's formulas."""

from dataclasses import replace
from itertools import product
from typing import get_args

import pytest
import torch
from torch import Tensor

from diptych.matchers import scan
from diptych.matchers.catalog import build_matcher
from diptych.matchers.kept import Kept
from diptych.matchers.kernels.scan import AffinityNorm, Aggregation
from diptych.matchers.scan import SCAN, SCANConfig
from tests.matchers import inputs
from tests.matchers.cases_scan import IMAGE, WORDS

pytestmark = pytest.mark.usefixtures("interpreted")
DIRECTIONS = ("t2i", "i2t")


def build(dim: int = 8, **options: object) -> SCAN:
    matcher = build_matcher(replace(SCANConfig(dim=dim, image=IMAGE, text=WORDS), **options), inputs.word_tokenizer())
    assert isinstance(matcher, SCAN)
    return matcher.eval()


def sides(matcher: SCAN, regions: list[int], words: list[int], extra: int = 0) -> tuple[Kept, Kept]:
    """What is kept of random local vectors, with so many real ones each; two are the same and one is the opposite."""
    kept = []
    for keep, lengths in ((matcher.keep_images, regions), (matcher.keep_texts, words)):
        mask = torch.arange(max(*lengths, 1) + extra) < torch.tensor(lengths).unsqueeze(1)
        vectors = torch.randn(*mask.shape, matcher.config.dim)
        vectors[0, 0], vectors[0, -1] = vectors[-1, 0], -vectors[-1, 0]
        kept.append(keep(scan.Encoded(vectors, mask, None, vectors)))
    return kept[0], kept[1]


def plain(matcher: SCAN, images: Kept, texts: Kept) -> Tensor:
    with torch.no_grad():
        return matcher.score(images, texts).clone()


def fused(matcher: SCAN, images: Kept, texts: Kept, dtype: torch.dtype, patch: pytest.MonkeyPatch) -> Tensor:
    with patch.context() as context, torch.no_grad():
        context.setattr(scan, "fused_dtype", lambda *tensors: dtype)
        context.setattr(SCAN, "_all_pairs", None)
        with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
            scores = matcher.score(images, texts)
    assert scores.dtype == torch.float32
    return scores


@pytest.mark.parametrize(("norm", "direction"), list(product(get_args(AffinityNorm), DIRECTIONS)))
def test_kernels_compute_what_the_plain_path_does(norm: str, direction: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # What is aggregated does not know how it was normalised: one norm with all aggregations is enough.
    for aggregation in get_args(Aggregation) if norm == "clipped-l2" else ("mean",):
        matcher = build(affinity_norm=norm, direction=direction, aggregation=aggregation)
        images, texts = sides(matcher, [5, 1, 3], [4, 1, 2, 7, 3], extra=2)
        expected = plain(matcher, images, texts)
        found = fused(matcher, images, texts, torch.float32, monkeypatch)
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5, msg=lambda m, how=aggregation: f"{how}: {m}")


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("norm", ["clipped-l2", "softmax", "none"])
def test_tiles_that_do_not_fit_and_an_item_of_padding_alone(
    norm: str, direction: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    matcher = build(dim=13, affinity_norm=norm, direction=direction, aggregation="lse")
    images, texts = sides(matcher, [37, 0, 1], [17, 1, 0, *range(2, 20)])
    expected = plain(matcher, images, texts)
    assert expected.isfinite().all()
    found = fused(matcher, images, texts, torch.float32, monkeypatch)
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(("regions", "words"), [([1], [1]), ([1, 1], [1, 1, 1]), ([128, 2], [3]), ([2], [100, 128])])
def test_one_region_one_word_and_the_largest(
    regions: list[int], words: list[int], direction: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    matcher = build(direction=direction)
    images, texts = sides(matcher, regions, words)
    found = fused(matcher, images, texts, torch.float32, monkeypatch)
    torch.testing.assert_close(found, plain(matcher, images, texts), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("softmax_lambda", [0.5, 10.0, 10.5, 60.0])
@pytest.mark.parametrize("norm", ["clipped-l2", "clipped"])
def test_however_sharp_the_attention_is(norm: str, softmax_lambda: float, monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = build(affinity_norm=norm, softmax_lambda=softmax_lambda)
    images, texts = sides(matcher, [9, 2, 1], [6, 1, 3])
    expected = plain(matcher, images, texts)
    found = fused(matcher, images, texts, torch.float32, monkeypatch)
    torch.testing.assert_close(found, expected, atol=1e-6 * (10 + softmax_lambda), rtol=0)
    found = fused(matcher, images, texts, torch.float16, monkeypatch)
    torch.testing.assert_close(found, expected, atol=0.003 * max(1, softmax_lambda), rtol=0)


@pytest.mark.parametrize(("dtype", "close"), [(torch.float16, 3e-3), (torch.bfloat16, 2e-2)])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_half_precision_is_near(
    direction: str, dtype: torch.dtype, close: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    matcher = build(dim=24, direction=direction)
    images, texts = sides(matcher, [36, 1, 3], [4, 1, 2, 11])
    found = fused(matcher, images, texts, dtype, monkeypatch)
    torch.testing.assert_close(found, plain(matcher, images, texts), atol=close, rtol=0)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_score_depends_on_its_pair_alone(direction: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not on the batch, nor on how far it is padded, nor on what lies at a pad."""
    matcher = build(direction=direction)
    images, texts = sides(matcher, [5, 1, 3], [4, 1, 2, 6])
    whole = fused(matcher, images, texts, torch.float32, monkeypatch)
    alone = fused(matcher, images[[2]].trim(), texts[[1]].trim(), torch.float32, monkeypatch)
    torch.testing.assert_close(alone[0, 0], whole[2, 1], atol=1e-6, rtol=1e-5)
    wide = images.resize(21), texts.resize(34)
    for side in wide:
        for tensor in side.tensors().values():
            if tensor.is_floating_point() and tensor.dim() == 3 and tensor.shape[1] != tensor.shape[2]:
                tensor.masked_fill_(~side.mask.unsqueeze(-1), float("nan"))
    again = fused(matcher, *wide, torch.float32, monkeypatch)
    torch.testing.assert_close(again, whole, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_vector_of_zeros_answers_nothing(direction: str, monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = build(direction=direction)
    images, texts = sides(matcher, [2, 1], [2, 1])
    for side in (images, texts):
        for tensor in side.tensors().values():
            if tensor.is_floating_point():
                tensor[1] = 0
    found = fused(matcher, images, texts, torch.float32, monkeypatch)
    torch.testing.assert_close(found, plain(matcher, images, texts), atol=1e-5, rtol=1e-5)
    assert not found[1].any()
    assert not found[:, 1].any()


def test_what_is_kept_may_lie_in_any_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut out of wider tensors, or with the items not in front of one another."""
    matcher = build()
    images, texts = sides(matcher, [5, 1, 3], [4, 1, 2, 6], extra=9)
    expected = plain(matcher, images, texts)
    turned = Kept(texts.vectors.permute(2, 1, 0).contiguous().permute(2, 1, 0), texts.mask.T.contiguous().T)
    found = fused(matcher, images.cut(5), turned.cut(6), torch.float32, monkeypatch)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_more_vectors_than_registers_hold_take_the_plain_path(direction: str, monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = build(direction=direction)
    images, texts = sides(matcher, [129, 1], [2, 3])
    expected = plain(matcher, images, texts)
    monkeypatch.setattr(scan, "fused_dtype", lambda *tensors: torch.float32)
    monkeypatch.setattr(scan, "fused_dtype_on", lambda device: torch.float32)
    monkeypatch.setattr(SCAN, "_fused", None)
    with torch.no_grad():
        assert torch.equal(matcher.score(images, texts), expected)
    assert matcher.pair_floats(129, 8) > 4 * 129 * 8


def test_kernels_take_the_affinities_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    t2i, i2t = build(), build(direction="i2t")
    assert t2i.has_kernels()
    before = t2i.pair_floats(36, 12)
    monkeypatch.setattr(scan, "fused_dtype_on", lambda device: torch.bfloat16)
    assert t2i.pair_floats(36, 12) == i2t.pair_floats(36, 12) == 36 * 12 + 1 < before / 4
    assert t2i.pair_floats(5, 9) == 5 * 12 + 1
    assert i2t.pair_floats(5, 9) == 9 * 8 + 1
