"""SCAN beside a slow loop that forms every attended context, as the paper writes it."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from diptych.common.config import parse
from diptych.common.errors import DiptychError
from diptych.matchers.catalog import build_matcher
from diptych.matchers.kept import Kept
from diptych.matchers.scan import SCAN, Attended, SCANConfig
from tests.matchers import inputs
from tests.matchers.cases_scan import CASES

VARIANTS = [name for name in CASES if "bert" not in name]


def scan(config: SCANConfig) -> SCAN:
    torch.manual_seed(5)
    matcher = build_matcher(config, inputs.word_tokenizer())
    assert isinstance(matcher, SCAN)
    return matcher.eval()


def unit(x: Tensor) -> Tensor:
    return x / (x.norm() + 1e-8)


def plain_rows(s: list[list[Tensor]], norm: str) -> list[list[Tensor]]:
    """The affinities of each attended vector (a row) with the queries, as they go into the attention."""
    if norm.startswith("clipped"):
        s = [[x if x > 0 else 0.1 * x for x in row] for row in s]
    if norm.endswith("l2"):
        return [[x / (sum(y**2 for y in row) ** 0.5 + 1e-8) for x in row] for row in s]
    if norm.endswith("l1"):
        return [[x / (sum(y.abs() for y in row) + 1e-8) for x in row] for row in s]
    if norm == "softmax":
        return [[x.exp() / sum(y.exp() for y in row) for x in row] for row in s]
    return s


def plain_score(queries: Tensor, attended: Tensor, matcher: SCAN) -> Tensor:
    """One pair without padding: queries (q, d), attended (k, d); the context of each query is formed."""
    rows = plain_rows([[a @ w for w in queries] for a in attended], matcher.config.affinity_norm)
    cosines = []
    for j, word in enumerate(queries):
        exponentials = [(matcher.softmax_lambda * row[j]).exp() for row in rows]
        context = sum(e / sum(exponentials) * a for e, a in zip(exponentials, attended, strict=True))
        cosines.append((word @ context) / (word.norm() * context.norm()))
    how, lse = matcher.config.aggregation, matcher.lse_lambda
    if how == "lse":
        return sum((lse * c).exp() for c in cosines).log() / lse
    if how == "max":
        return torch.stack(cosines).max()
    return sum(cosines) / (len(cosines) if how == "mean" else 1)


def plain_scores(matcher: SCAN, regions: list[Tensor], words: list[Tensor]) -> Tensor:
    """All pairs from the encoders' vectors, which are not yet normalised."""
    rows = []
    for picture in regions:
        v = torch.stack([unit(x) for x in picture])
        row = []
        for sentence in words:
            t = torch.stack([unit(x) for x in sentence])
            queries, attended = (t, v) if matcher.config.direction == "t2i" else (v, t)
            row.append(plain_score(queries, attended, matcher))
        rows.append(torch.stack(row))
    return torch.stack(rows)


def encoded(matcher: SCAN) -> tuple[list[Tensor], list[Tensor]]:
    """The encoders' real vectors, item by item."""
    pictures = matcher.image_encoder(inputs.images())
    sentences = matcher.text_encoder(inputs.texts(matcher.tokenizer))
    return tuple([v[m] for v, m in zip(e.vectors, e.mask, strict=True)] for e in (pictures, sentences))


@pytest.mark.parametrize("name", VARIANTS)
def test_scores_and_gradients_equal_the_plain_form(name: str) -> None:
    ours, theirs = scan(CASES[name]), scan(CASES[name])
    scores = ours.score(*ours(inputs.images(), inputs.texts(ours.tokenizer)))
    expected = plain_scores(theirs, *encoded(theirs))
    torch.testing.assert_close(scores, expected, atol=1e-5, rtol=1e-5)
    weights = torch.randn_like(scores)
    (scores * weights).sum().backward()
    (expected * weights).sum().backward()
    for (which, a), b in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        assert a.grad is not None
        assert b.grad is not None
        torch.testing.assert_close(a.grad, b.grad, atol=1e-5, rtol=1e-4, msg=lambda text, w=which: f"{w}: {text}")


@settings(max_examples=30, deadline=None)
@given(
    regions=st.lists(st.integers(1, 5), min_size=1, max_size=3),
    words=st.lists(st.integers(1, 6), min_size=1, max_size=3),
    name=st.sampled_from(VARIANTS),
    seed=st.integers(0, 1000),
)
def test_any_ragged_block_equals_the_plain_form(regions: list[int], words: list[int], name: str, seed: int) -> None:
    matcher = scan(CASES[name])
    generator = torch.Generator().manual_seed(seed)
    pictures = [torch.randn(r, 8, generator=generator) for r in regions]
    sentences = [torch.randn(w, 8, generator=generator) for w in words]
    images = kept(pictures, matcher.config.direction == "t2i")
    texts = kept(sentences, matcher.config.direction == "i2t")
    expected = plain_scores(matcher, pictures, sentences)
    torch.testing.assert_close(matcher.score(images, texts), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", VARIANTS)
def test_without_gradients_scores_are_the_same(name: str) -> None:
    matcher = scan(CASES[name])
    with torch.no_grad():
        images, texts = inputs.kept_images(matcher, extra=2), inputs.kept_texts(matcher, extra=3)
    for seen, told in ((images, texts), (images[[1]].trim(), texts[[2]].trim())):
        before = seen.vectors.clone(), told.vectors.clone()
        expected = matcher.score(seen, told)
        with torch.no_grad():
            torch.testing.assert_close(matcher.score(seen, told), expected)
            aligned = matcher.score_pairs(seen[[0, 0]], told[[0, 0]])
        torch.testing.assert_close(aligned, expected[0, 0].expand(2))
        assert torch.equal(seen.vectors, before[0])
        assert torch.equal(told.vectors, before[1])


def kept(items: list[Tensor], attended: bool) -> Kept:
    longest = max(len(x) for x in items)
    vectors = torch.zeros(len(items), longest, items[0].shape[1])
    mask = torch.zeros(len(items), longest, dtype=torch.bool)
    for i, x in enumerate(items):
        vectors[i, : len(x)] = torch.stack([unit(v) for v in x])
        mask[i, : len(x)] = True
    return Attended(vectors, mask, vectors @ vectors.transpose(1, 2)) if attended else Kept(vectors, mask)


@pytest.mark.parametrize("name", VARIANTS)
def test_gradients_of_aligned_pairs_equal_those_of_the_matrix(name: str) -> None:
    matcher = scan(CASES[name])
    grads = []
    for pairs in (False, True):
        matcher.zero_grad()
        images, texts = matcher(inputs.images(), inputs.texts(matcher.tokenizer))
        texts = texts[: len(images)]
        scores = matcher.score_pairs(images, texts) if pairs else matcher.score(images, texts).diagonal()
        scores.sum().backward()
        grads.append([p.grad.clone() for p in matcher.parameters() if p.grad is not None])
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


def test_only_the_attended_side_keeps_a_gram_matrix() -> None:
    for direction in ("t2i", "i2t"):
        matcher = scan(replace(CASES["scan-t2i-mean"], direction=direction))
        images, texts = matcher(inputs.images(), inputs.texts(matcher.tokenizer))
        assert isinstance(images, Attended) == (direction == "t2i")
        assert isinstance(texts, Attended) == (direction == "i2t")


def test_one_word_that_is_a_region_scores_one() -> None:
    """With one region the context is that region; a word equal to it has cosine 1, and LSE adds nothing to one word."""
    for name in VARIANTS:
        matcher = scan(CASES[name])
        same = [torch.randn(1, 8)]
        score = matcher.score(
            kept(same, matcher.config.direction == "t2i"), kept(same, matcher.config.direction == "i2t")
        )
        assert math.isclose(float(score), 1.0, abs_tol=1e-5)


def test_a_region_of_zeros_gives_finite_scores_and_gradients() -> None:
    for name in VARIANTS:
        matcher = scan(CASES[name])
        zero = torch.zeros(2, 1, 8, requires_grad=True)
        mask = torch.ones(2, 1, dtype=torch.bool)
        sides = [Attended(zero, mask, zero @ zero.transpose(1, 2)), Kept(torch.randn(3, 1, 8), mask[[0, 0, 1]])]
        images, texts = sides if matcher.config.direction == "t2i" else reversed(sides)
        scores = matcher.score(images, texts)
        scores.sum().backward()
        assert scores.isfinite().all()
        assert zero.grad is not None
        assert zero.grad.isfinite().all()


@pytest.mark.parametrize("name", VARIANTS)
def test_a_picture_without_regions_scores_zero_and_has_finite_gradients(name: str) -> None:
    matcher = scan(CASES[name])
    vectors = torch.randn(2, 3, 8, requires_grad=True)
    mask = torch.tensor([[False, False, False], [True, True, False]])
    real = vectors * mask.unsqueeze(-1)
    t2i = matcher.config.direction == "t2i"
    images = Attended(real, mask, real @ real.transpose(1, 2)) if t2i else Kept(real, mask)
    texts = kept([torch.randn(2, 8), torch.randn(4, 8)], attended=not t2i)
    for scores in (matcher.score(images, texts), matcher.score_pairs(images, texts).unsqueeze(1)):
        assert scores.isfinite().all()
        if not t2i:  # nothing asks: what there is to answer does not count
            assert not scores[0].any()
        (gradient,) = torch.autograd.grad(scores.sum(), vectors, retain_graph=True)
        assert gradient.isfinite().all()


def test_lambdas_are_the_papers_unless_given() -> None:
    assert [scan(CASES[n]).softmax_lambda for n in ("scan-t2i-mean", "scan-i2t-mean")] == [9.0, 4.0]
    assert [scan(CASES[n]).lse_lambda for n in ("scan-t2i-lse", "scan-i2t-lse", "scan-i2t-lse-coco")] == [
        6.0,
        5.0,
        20.0,
    ]
    assert scan(replace(CASES["scan-t2i-mean"], softmax_lambda=2.5)).softmax_lambda == 2.5


def test_a_lambda_of_zero_is_an_error_that_names_it() -> None:
    with pytest.raises(DiptychError, match=r"recipe\.toml: softmax_lambda: expected a number above 0"):
        parse(SCANConfig, {"softmax_lambda": 0}, "recipe.toml")


@pytest.mark.parametrize("direction", ["t2i", "i2t"])
def test_attention_is_what_the_score_was_made_of(direction: str) -> None:
    matcher = scan(replace(CASES["scan-t2i-mean"], direction=direction))
    with matcher.inference():
        images = inputs.kept_images(matcher, extra=1)
        texts = inputs.kept_texts(matcher, extra=2)
        seen = matcher.see(images, texts)
        scores = matcher.score(images, texts)
    t2i = direction == "t2i"
    names = {"word_to_region", "word_fit"} if t2i else {"region_to_word", "region_fit"}
    assert seen.keys() == names
    weights = seen["word_to_region" if t2i else "region_to_word"].values
    fits = seen["word_fit" if t2i else "region_fit"].values
    queries, attended = (texts, images) if t2i else (images, texts)
    assert weights.shape == (len(images), len(texts), queries.mask.shape[1], attended.mask.shape[1])
    for i in range(len(images)):
        for j in range(len(texts)):
            mine, theirs = (j, i) if t2i else (i, j)
            contexts = weights[i, j] @ attended.vectors[theirs]
            cosines = torch.cosine_similarity(contexts, queries.vectors[mine], dim=-1)
            torch.testing.assert_close(fits[i, j], cosines, atol=1e-5, rtol=1e-5)
            torch.testing.assert_close(cosines[queries.mask[mine]].mean(), scores[i, j], atol=1e-5, rtol=1e-5)
            assert (weights[i, j][~queries.mask[mine]] == 0).all()
            assert (weights[i, j][:, ~attended.mask[theirs]] == 0).all()
            torch.testing.assert_close(weights[i, j].sum(-1), queries.mask[mine].float())
