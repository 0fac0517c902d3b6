"""What every matcher must hold to, now and later."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from diptych.encoders.texts import TransformerConfig
from diptych.matchers.base import Matcher
from diptych.matchers.catalog import build_matcher, build_tokenizer
from tests.matchers import inputs
from tests.matchers.cases import CASES
from tests.search import tiny

CLOSE = {"atol": 2e-5, "rtol": 1e-4}


@pytest.fixture(scope="module")
def towers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("towers")
    return {"clip": tiny.save_clip(folder / "clip"), "siglip": tiny.save_siglip(folder / "siglip")}


@pytest.fixture(params=[*sorted(CASES), "clip", "siglip"])
def matcher(request: pytest.FixtureRequest, tiny_bert: str, towers: dict[str, str]) -> Matcher:
    if request.param in towers:
        return Matcher.from_pretrained(towers[request.param])
    config = CASES[request.param]
    if isinstance(config.text, TransformerConfig):
        config = replace(config, text=replace(config.text, name=tiny_bert))
        tokenizer = build_tokenizer(config.text, None)
    else:
        tokenizer = inputs.word_tokenizer()
    torch.manual_seed(3)
    return build_matcher(config, tokenizer).eval()


def all_scores(matcher: Matcher, extra: int = 0) -> torch.Tensor:
    with matcher.inference():
        images = inputs.kept_images(matcher, extra)
        texts = inputs.kept_texts(matcher, extra)
        return matcher.score(images, texts)


def test_scores_are_finite_and_of_every_pair(matcher: Matcher) -> None:
    scores = all_scores(matcher)
    assert scores.shape == (len(inputs.REGIONS), len(inputs.SENTENCES))
    assert scores.isfinite().all()
    assert scores.std() > 0


def test_padding_of_the_input_never_moves_a_score(matcher: Matcher) -> None:
    torch.testing.assert_close(all_scores(matcher, extra=4), all_scores(matcher), **CLOSE)


def test_padding_of_what_is_kept_never_moves_a_score(matcher: Matcher) -> None:
    with matcher.inference():
        images = inputs.kept_images(matcher)
        texts = inputs.kept_texts(matcher)
        padded = matcher.score(images.resize(images.mask.shape[1] + 3), texts.resize(texts.mask.shape[1] + 2))
    torch.testing.assert_close(padded, all_scores(matcher), **CLOSE)


def test_a_score_depends_on_its_own_pair_alone(matcher: Matcher) -> None:
    scores = all_scores(matcher)
    images, texts = inputs.images_for(matcher), inputs.texts(matcher.tokenizer)
    with matcher.inference():
        for i, row in enumerate(scores):
            one = matcher.keep_images(matcher.image_encoder(inputs.part(images, i)))
            for j, score in enumerate(row):
                other = matcher.keep_texts(matcher.text_encoder(inputs.part(texts, j)))
                torch.testing.assert_close(matcher.score(one.trim(), other.trim())[0, 0], score, **CLOSE)


def test_what_a_store_is_told_to_compare_is_the_score(matcher: Matcher) -> None:
    layout = matcher.layout()
    if layout is None:
        return
    with matcher.inference():
        v, t = (
            side.vectors[:, : layout.set_size] for side in (inputs.kept_images(matcher), inputs.kept_texts(matcher))
        )
        torch.testing.assert_close(v.norm(dim=-1), torch.ones(v.shape[:2]), **CLOSE)
        torch.testing.assert_close(t.norm(dim=-1), torch.ones(t.shape[:2]), **CLOSE)
        cosines = torch.einsum("nkd,mld->nmkl", v, t)
        torch.testing.assert_close(layout.compare(cosines), all_scores(matcher), **CLOSE)
        # Nothing is above what is said to be the bound of all that is no nearer.
        nearest = cosines.amax((1, 3))  # (n, K): of each picture's elements
        for row, bound in zip(layout.compare(cosines), nearest, strict=True):
            assert float(row.max()) <= layout.bound(bound) + 1e-5


def test_what_can_be_seen_has_the_shape_that_it_names_and_nothing_at_pads(matcher: Matcher) -> None:
    with matcher.inference():
        images = matcher.image_encoder(inputs.images_for(matcher, 2))
        texts = matcher.text_encoder(inputs.texts(matcher.tokenizer, 2))
        kept = matcher.keep_images(images), matcher.keep_texts(texts)
        views = matcher.see(*kept, (images, texts))
        assert matcher.see(*kept).keys() <= views.keys()
    masks = {"regions": images.mask[:, None], "words": texts.mask[None]}
    for name, view in views.items():
        assert view.values.shape[:2] == (len(images.mask), len(texts.mask)), name
        for axis, over in enumerate(view.axes, 2):
            if over in masks:
                moved = view.values.movedim(axis, 2)
                real = masks[over].expand(*moved.shape[:3])
                assert moved.shape[2] == real.shape[2], name
                assert not moved[~real].any(), name


def test_order_and_block_size_change_nothing(matcher: Matcher) -> None:
    scores = all_scores(matcher)
    with matcher.inference():
        images = inputs.kept_images(matcher)
        texts = inputs.kept_texts(matcher)
        rows, columns = torch.randperm(len(images)), torch.randperm(len(texts))
        torch.testing.assert_close(matcher.score(images[rows], texts[columns]), scores[rows][:, columns], **CLOSE)
        blocks = [
            torch.cat([matcher.score(images[i : i + 2], texts[j : j + 3]) for j in range(0, len(texts), 3)], 1)
            for i in range(0, len(images), 2)
        ]
    torch.testing.assert_close(torch.cat(blocks), scores, **CLOSE)


def test_aligned_pairs_score_as_in_the_matrix(matcher: Matcher) -> None:
    scores = all_scores(matcher)
    rows, columns = torch.tensor([0, 1, 4, 2, 2]), torch.tensor([1, 1, 5, 2, 0])
    with matcher.inference():
        images = inputs.kept_images(matcher)[rows]
        texts = inputs.kept_texts(matcher)[columns]
        pairs = matcher.score_pairs(images, texts)
    torch.testing.assert_close(pairs, scores[rows, columns], **CLOSE)


def test_equal_sentences_score_equally(matcher: Matcher) -> None:
    scores = all_scores(matcher)
    first, again = [i for i, s in enumerate(inputs.SENTENCES) if s == "a red dog"]
    torch.testing.assert_close(scores[:, first], scores[:, again], **CLOSE)


def test_kept_in_half_precision_scores_almost_the_same(matcher: Matcher) -> None:
    with matcher.inference():
        images = inputs.kept_images(matcher)
        texts = inputs.kept_texts(matcher)
        half = matcher.score(
            images.to(dtype=torch.float16).to(dtype=torch.float32),
            texts.to(dtype=torch.float16).to(dtype=torch.float32),
        )
    torch.testing.assert_close(half, all_scores(matcher), atol=2e-2, rtol=2e-2)


def test_bfloat16_autocast_stays_finite_and_near(matcher: Matcher) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        scores = all_scores(matcher)
    assert scores.isfinite().all()
    torch.testing.assert_close(scores.float(), all_scores(matcher), atol=0.15, rtol=0.15)


def test_save_and_load_give_equal_scores(matcher: Matcher, tmp_path: Path) -> None:
    matcher.save_pretrained(tmp_path / "saved")
    again = Matcher.from_pretrained(tmp_path / "saved")
    assert type(again) is type(matcher)
    assert again.config == matcher.config
    torch.testing.assert_close(all_scores(again), all_scores(matcher), atol=0, rtol=0)


def test_what_is_kept_can_be_saved_and_loaded(matcher: Matcher, tmp_path: Path) -> None:
    with matcher.inference():
        images = inputs.kept_images(matcher)
    images.save(tmp_path / "images.safetensors")
    again = type(images).load(tmp_path / "images.safetensors")
    assert again.tensors().keys() == images.tensors().keys()
    for name, tensor in images.tensors().items():
        torch.testing.assert_close(again.tensors()[name], tensor, atol=0, rtol=0)


def test_gradients_reach_every_trained_parameter(matcher: Matcher) -> None:
    matcher.train()
    images, texts = matcher(inputs.images_for(matcher), inputs.texts(matcher.tokenizer))
    logits = matcher.logits(images, texts)
    weights = torch.randn_like(logits)
    (logits * weights).sum().backward()
    silent = [
        name
        for name, parameter in matcher.named_parameters()
        if parameter.requires_grad and (parameter.grad is None or not parameter.grad.abs().sum() > 0)
    ]
    assert silent == []
