"""MMCA's kernels beside its plain path, which other tests hold against the paper's formulas."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from diptych.encoders.encoded import Encoded
from diptych.matchers import mmca
from diptych.matchers.kept import Kept
from diptych.matchers.mmca import MMCA, MMCAConfig
from tests.matchers import inputs
from tests.matchers.cases_mmca import CASES

# The transformer of the other cases is not what is tried here: local vectors are random.
BASE = CASES["mmca-gru"]
TRIED = {
    "gru": BASE,
    "shared": CASES["mmca-shared-gru"],
    "layer-norm": replace(BASE, normalisation="layer-norm"),
    "scale-dim": replace(BASE, scale="dim"),
    "self-attended": replace(BASE, cross_input="self-attended"),
    "one-head": replace(BASE, heads=1),
    "few-filters": replace(BASE, filters=5),
    "wide": replace(BASE, dim=40, heads=4, filters=70),
}


@pytest.fixture
def build() -> Callable[[MMCAConfig], MMCA]:
    def make(config: MMCAConfig) -> MMCA:
        torch.manual_seed(3)
        matcher = MMCA(config, inputs.word_tokenizer()).eval()
        with torch.no_grad():
            for parameter in matcher.parameters():  # biases begin at 0, which would hide a mistake
                parameter.add_(0.1 * torch.randn_like(parameter))
        return matcher

    return make


def sides(matcher: MMCA, regions: list[int], words: list[int], extra: int = 0) -> tuple[Kept, Kept]:
    """What is kept of random local vectors, with so many real ones each."""
    kept = []
    for keep, lengths in ((matcher.keep_images, regions), (matcher.keep_texts, words)):
        mask = torch.arange(max(*lengths, 1) + extra) < torch.tensor(lengths).unsqueeze(1)
        vectors = 2 * torch.randn(*mask.shape, matcher.config.dim)
        with torch.no_grad():
            kept.append(keep(Encoded(vectors, mask, None, vectors)))
    return kept[0], kept[1]


def plain(matcher: MMCA, images: Kept, texts: Kept) -> Tensor:
    """Pair by pair, as they are aligned."""
    with torch.no_grad():
        return torch.stack(
            [matcher.score_pairs(images, texts[torch.full((len(images),), j)]) for j in range(len(texts))], 1
        )


def fused(matcher: MMCA, images: Kept, texts: Kept, dtype: torch.dtype, patch: pytest.MonkeyPatch) -> Tensor:
    with patch.context() as context, torch.no_grad():
        context.setattr(mmca, "fused_dtype", lambda *tensors: dtype)
        return matcher.score(images, texts)


@pytest.mark.parametrize("name", sorted(TRIED))
def test_kernels_compute_what_the_plain_path_does(
    name: str, build: Callable[[MMCAConfig], MMCA], monkeypatch: pytest.MonkeyPatch
) -> None:
    matcher = build(TRIED[name])
    assert matcher.has_kernels()
    images, texts = sides(matcher, [5, 1, 3], [4, 1, 2, 7, 3], extra=2)
    found = fused(matcher, images, texts, torch.float32, monkeypatch)
    torch.testing.assert_close(found, plain(matcher, images, texts), atol=2e-6, rtol=1e-5)


def test_tiles_that_do_not_fit_and_an_item_of_padding_alone(
    build: Callable[[MMCAConfig], MMCA], monkeypatch: pytest.MonkeyPatch
) -> None:
    matcher = build(BASE)
    images, texts = sides(matcher, [37, 0, 1], [17, 1, 0, 2, 3, 4, 5, 6, 7])
    expected = plain(matcher, images, texts)
    assert expected.isfinite().all()
    found = fused(matcher, images, texts, torch.float32, monkeypatch)
    torch.testing.assert_close(found, expected, atol=2e-6, rtol=1e-5)


def test_pads_that_are_not_at_the_end_and_hold_anything(
    build: Callable[[MMCAConfig], MMCA], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What lies at a pad is no part of a score."""
    matcher = build(BASE)
    mask = torch.tensor([[True, False, True, True], [False, True, False, True]])
    vectors = torch.randn(2, 4, matcher.config.dim)
    with torch.no_grad():
        kept = [
            (
                matcher.keep_images(Encoded(v, mask, None, v)),
                matcher.keep_texts(Encoded(v, mask, None, v)),
            )
            for v in (vectors, torch.where(mask.unsqueeze(-1), vectors, torch.full_like(vectors, 30.0)))
        ]
    scores = [fused(matcher, *both, torch.float32, monkeypatch) for both in kept]
    torch.testing.assert_close(scores[0], plain(matcher, *kept[0]), atol=2e-6, rtol=1e-5)
    torch.testing.assert_close(scores[1], scores[0], atol=2e-6, rtol=1e-5)


def test_large_affinities_do_not_overflow(build: Callable[[MMCAConfig], MMCA], monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = build(BASE)
    with torch.no_grad():
        assert matcher.cross_unit is not None
        matcher.cross_unit.query.weight *= 300
    images, texts = sides(matcher, [5, 2], [3, 4])
    expected = plain(matcher, images, texts)
    found = fused(matcher, images, texts, torch.float32, monkeypatch)
    assert found.isfinite().all()
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_half_precision_is_near(build: Callable[[MMCAConfig], MMCA], monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = build(replace(BASE, alpha=0.8))
    images, texts = sides(matcher, [5, 1, 3], [4, 1, 2])
    found = fused(matcher, images, texts, torch.float16, monkeypatch)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, plain(matcher, images, texts), atol=5e-3, rtol=0)


def test_a_score_does_not_depend_on_what_else_is_scored(
    build: Callable[[MMCAConfig], MMCA], monkeypatch: pytest.MonkeyPatch
) -> None:
    matcher = build(BASE)
    images, texts = sides(matcher, [5, 1, 3], [4, 1, 2])
    whole = fused(matcher, images, texts, torch.float32, monkeypatch)
    alone = fused(matcher, images[[2]].trim(), texts[[1]].trim(), torch.float32, monkeypatch)
    torch.testing.assert_close(alone[0, 0], whole[2, 1], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(
    "config", [replace(BASE, convolve_pads=True), replace(BASE, dim=264, heads=8), replace(BASE, alpha=0.0)]
)
def test_other_options_take_the_plain_path(config: MMCAConfig, build: Callable[[MMCAConfig], MMCA]) -> None:
    assert not build(config).has_kernels()


def test_a_tile_of_wide_heads_holds_fewer_regions(build: Callable[[MMCAConfig], MMCA]) -> None:
    narrow, wide = build(replace(BASE, dim=256, heads=4)), build(replace(BASE, dim=256, heads=2))
    assert narrow.has_kernels(128, 64)
    assert not narrow.has_kernels(129, 1)
    assert not narrow.has_kernels(1, 65)
    assert wide.has_kernels(64, 64)
    assert not wide.has_kernels(65, 1)


def test_long_sentences_take_the_plain_path(
    build: Callable[[MMCAConfig], MMCA], monkeypatch: pytest.MonkeyPatch
) -> None:
    matcher = build(BASE)
    images, texts = sides(matcher, [3, 2], [65, 2])
    found = fused(matcher, images, texts, torch.float16, monkeypatch)
    torch.testing.assert_close(found, plain(matcher, images, texts), atol=2e-6, rtol=1e-5)


def test_sides_that_were_cut(build: Callable[[MMCAConfig], MMCA], monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept of ragged items is cut to groups of like length, which leaves gaps between them in memory."""
    matcher = build(BASE)
    images, texts = sides(matcher, [5, 1, 3], [4, 1, 2, 3], extra=4)
    images, texts = images.cut(5), texts.cut(4)
    assert not images.mask.is_contiguous()
    expected = plain(matcher, images, texts)
    found = fused(matcher, images, texts, torch.float32, monkeypatch)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
