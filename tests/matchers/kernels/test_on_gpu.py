"""The kernels as a GPU runs them, beside the plain path in float32. Skipped where there is no GPU for them."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from diptych.common.fused import has_kernels
from diptych.encoders.encoded import Encoded
from diptych.matchers.base import Matcher
from diptych.matchers.catalog import MatcherConfig, build_matcher
from diptych.matchers.kept import Kept
from diptych.scoring.blocks import score_all
from diptych.scoring.top_k import top_k_both
from tests.matchers import inputs
from tests.matchers.cases import CASES

GPU = torch.device("cuda")
pytestmark = pytest.mark.skipif(
    not (torch.cuda.is_available() and has_kernels(GPU)), reason="there is no GPU that kernels run on"
)
HALVES = (torch.bfloat16, torch.float16)
# The papers' widths, and narrow ones that fill no tile.
TRIED: dict[str, MatcherConfig] = {
    "vse++": replace(CASES["vse++"], dim=1024),
    "dive": replace(CASES["dive"], dim=1024, slots=4),
    "dive-mil": replace(CASES["dive-mil"], dim=72, slots=4),
    "scan-t2i-mean": replace(CASES["scan-t2i-mean"], dim=1024),
    "scan-t2i-lse": replace(CASES["scan-t2i-lse"], dim=40),
    "scan-i2t-mean": replace(CASES["scan-i2t-mean"], dim=1024),
    "camp": replace(CASES["camp"], dim=1024),
    "camp-narrow": replace(CASES["camp"], dim=40),
    "camp-scalar-gate": replace(CASES["camp-scalar-gate"], dim=1024),
    "camp-concat": replace(CASES["camp-concat"], dim=256),
    "camp-product": replace(CASES["camp-product"], dim=256),
    "mmca": replace(CASES["mmca-gru"], dim=256, heads=16),
    "mmca-narrow": replace(CASES["mmca-gru"], dim=40, heads=5, alpha=0.8),
    "mmca-layer-norm": replace(CASES["mmca-gru"], dim=128, heads=8, normalisation="layer-norm"),
}
SIZES = {"many": (70, 36, 130, 16), "few": (3, 1, 2, 3), "long": (5, 100, 9, 40)}


@pytest.fixture
def build() -> Callable[[str], Matcher]:
    def make(name: str) -> Matcher:
        torch.manual_seed(3)
        matcher = build_matcher(TRIED[name], inputs.word_tokenizer()).eval()
        with torch.no_grad():
            for parameter in matcher.parameters():  # biases begin at 0, which would hide a mistake
                parameter.add_(0.02 * torch.randn_like(parameter))
        return matcher.to(GPU)

    return make


def sides(matcher: Matcher, n: int, regions: int, m: int, words: int) -> tuple[Kept, Kept]:
    """What is kept of random local vectors of ragged items."""
    kept = []
    for count, longest, keep in ((n, regions, matcher.keep_images), (m, words, matcher.keep_texts)):
        mask = torch.arange(longest) < torch.randint(1, longest + 1, (count, 1))
        mask[0] = True
        mask = mask.to(GPU)
        vectors = torch.randn(count, longest, matcher.config.dim, device=GPU)
        spelt = torch.randn(count, longest, matcher.config.text.word_dim, device=GPU)
        with matcher.inference():
            kept.append(keep(Encoded(vectors, mask, vectors[:, 0], spelt)))
    return kept[0], kept[1]


def aligned(matcher: Matcher, images: Kept, texts: Kept, dtype: torch.dtype = torch.float32) -> Tensor:
    """All pairs one by one, which no kernel is for."""
    torch.set_float32_matmul_precision("highest")
    i, j = torch.meshgrid(torch.arange(len(images)), torch.arange(len(texts)), indexing="ij")
    with matcher.inference(), torch.autocast("cuda", dtype, enabled=dtype != torch.float32):
        found = [
            matcher.score_pairs(images[a.to(GPU)], texts[b.to(GPU)])
            for a, b in zip(i.flatten().split(500), j.flatten().split(500), strict=True)
        ]
    return torch.cat(found).float().view(i.shape).cpu()


@pytest.mark.parametrize("size", sorted(SIZES))
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("name", sorted(TRIED))
def test_scores_are_those_of_aligned_pairs_in_float32(
    name: str, dtype: torch.dtype, size: str, build: Callable[[str], Matcher]
) -> None:
    """As near to them as plain PyTorch comes in the same half precision."""
    matcher = build(name)
    images, texts = sides(matcher, *SIZES[size])
    expected = aligned(matcher, images, texts)
    plain = aligned(matcher, images, texts, dtype)
    found = score_all(matcher, images, texts, dtype=dtype)
    assert found.dtype == torch.float32
    ours, theirs = ((x - expected).double().square().mean().sqrt() for x in (found, plain))
    assert ours <= 2.5 * theirs + 3e-4
    assert (found - expected).abs().max() <= 3 * (plain - expected).abs().max() + 2e-3


@pytest.mark.parametrize("name", ["vse++", "dive", "scan-t2i-mean"])
def test_the_best_both_ways_are_those_of_the_matrix(name: str, build: Callable[[str], Matcher]) -> None:
    matcher = build(name)
    images, texts = sides(matcher, 300, 36, 700, 16)
    scores = score_all(matcher, images, texts, dtype=torch.bfloat16)
    for_texts, for_images = top_k_both(matcher, images, texts, 10, 7, dtype=torch.bfloat16)
    for (found, places), rows, k in ((for_texts, scores.T, 10), (for_images, scores, 7)):
        order = rows.sort(descending=True, stable=True)
        assert torch.equal(found, order.values[:, :k])
        assert torch.equal(places, order.indices[:, :k])
