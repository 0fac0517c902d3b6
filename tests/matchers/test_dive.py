"""DivE against a loop written from its formulas: one pair, one slot, one head at a time."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from diptych.common.config import parse
from diptych.common.errors import DiptychError
from diptych.encoders.texts import GRUEncoder, TransformerConfig
from diptych.matchers.catalog import build_tokenizer
from diptych.matchers.dive import DivE, DivEConfig
from tests.encoders.slow_sets import slow_set
from tests.matchers import inputs
from tests.matchers.cases_dive import CASES, DIVE
from tests.matchers.test_set_similarity import slow_similarity

CLOSE = {"atol": 1e-5, "rtol": 1e-5}
LEGACY = {
    "dive-legacy": replace(DIVE, legacy_mask=True),
    "dive-legacy-bert": replace(DIVE, text=TransformerConfig(), legacy_mask=True),
    "dive-one-slot": replace(DIVE, slots=1),
}


def build(config: DivEConfig, tiny_bert: str) -> DivE:
    if isinstance(config.text, TransformerConfig):
        config = replace(config, text=replace(config.text, name=tiny_bert))
        tokenizer = build_tokenizer(config.text, None)
    else:
        tokenizer = inputs.word_tokenizer()
    torch.manual_seed(3)
    matcher = DivE(config, tokenizer).eval()
    with torch.no_grad():
        for part in (matcher.image_set, matcher.text_set):
            for parameter in part.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
    return matcher


def slow_images(matcher: DivE) -> list[list[Tensor]]:
    """The set of each picture, from its projected regions."""
    encoded = matcher.image_encoder(inputs.images())
    result = []
    for regions, mask in zip(encoded.vectors, encoded.mask, strict=True):
        real = regions[: int(mask.sum())]
        whole = torch.stack([real[:, i].max() for i in range(real.shape[1])])
        result.append(slow_set(matcher.image_set, list(regions), whole, pads=len(regions) - len(real))[0])
    return result


def slow_texts(matcher: DivE) -> list[list[Tensor]]:
    """The set of each sentence, from its word embeddings or its projected pieces."""
    encoder = matcher.text_encoder
    tokens = inputs.texts(matcher.tokenizer)
    encoded = encoder(tokens)
    result = []
    for i, mask in enumerate(tokens.mask):
        length = int(mask.sum())
        if isinstance(encoder, GRUEncoder):
            locals_ = encoder.embed.weight[tokens.ids[i]]
            forward, backward = encoder.rnn(locals_[:length])[1]
            whole = (forward + backward) / 2
        else:
            locals_ = encoded.vectors[i]
            whole = locals_[0]
        if matcher.config.text_global == "max":
            whole = encoded.vectors[i, :length].amax(0)
        result.append(slow_set(matcher.text_set, list(locals_), whole, pads=len(mask) - length)[0])
    return result


@pytest.mark.parametrize("name", sorted({**CASES, **LEGACY}))
def test_scores_and_gradients_are_those_of_the_loop(name: str, tiny_bert: str) -> None:
    matcher = build({**CASES, **LEGACY}[name], tiny_bert)
    config = matcher.config
    images, texts = inputs.kept_images(matcher), inputs.kept_texts(matcher)
    fast = matcher.score(images, texts)
    slow = torch.stack(
        [
            torch.stack([slow_similarity(config.similarity, torch.stack(x), torch.stack(y), config.alpha) for y in ys])
            for ys in [slow_texts(matcher)]
            for x in slow_images(matcher)
        ]
    )
    torch.testing.assert_close(fast, slow, **CLOSE)

    weights = torch.randn_like(fast)
    names, parameters = zip(*((n, p) for n, p in matcher.named_parameters() if p.requires_grad), strict=True)
    got = torch.autograd.grad((fast * weights).sum(), parameters, allow_unused=True)
    expected = torch.autograd.grad((slow * weights).sum(), parameters, allow_unused=True)
    for parameter, g, e in zip(names, got, expected, strict=True):
        if parameter.startswith("mp_"):
            continue  # the loop takes them as numbers
        assert g is not None, parameter
        assert e is not None, parameter
        torch.testing.assert_close(g, e, atol=1e-5, rtol=1e-3, msg=lambda m, name=parameter: f"{name}: {m}")


@pytest.mark.parametrize("name", sorted(n for n in LEGACY if "legacy" in n))
def test_with_the_published_mask_padding_moves_scores(name: str, tiny_bert: str) -> None:
    matcher = build(LEGACY[name], tiny_bert)
    with matcher.inference():
        images = inputs.kept_images(matcher)
        few = matcher.score(images, inputs.kept_texts(matcher))
        many = matcher.score(images, inputs.kept_texts(matcher, extra=6))
    assert (few - many).abs().max() > 1e-3


def test_the_match_probability_learns_a_and_b(tiny_bert: str) -> None:
    matcher = build(CASES["dive-mp"], tiny_bert)
    with torch.no_grad():
        matcher.mp_a.fill_(2.5)
        matcher.mp_b.fill_(-0.75)
    images, texts = inputs.kept_images(matcher), inputs.kept_texts(matcher)
    slow = slow_similarity("mp", images.vectors[2], texts.vectors[1], a=2.5, b=-0.75)
    torch.testing.assert_close(matcher.score(images, texts)[2, 1], slow, **CLOSE)
    torch.testing.assert_close(matcher.logits(images, texts).sigmoid(), matcher.score(images, texts), **CLOSE)
    gradients = torch.autograd.grad(matcher.score(images, texts)[2, 1], (matcher.mp_a, matcher.mp_b))
    step = 1e-2
    for i, gradient in enumerate(gradients):
        a, b = (2.5 + step, -0.75) if i == 0 else (2.5, -0.75 + step)
        moved = slow_similarity("mp", images.vectors[2], texts.vectors[1], a=a, b=b)
        assert float(gradient) == pytest.approx(float((moved - slow).detach() / step), abs=2e-3)


def test_circular_variance_is_reported_for_both_sides(tiny_bert: str) -> None:
    matcher = build(DIVE, tiny_bert)
    with matcher.inference():
        images, texts = inputs.kept_images(matcher), inputs.kept_texts(matcher)
        figures = matcher.pair_figures(images.resize(6), texts, torch.zeros(len(texts), dtype=torch.long))
    slow = [1 - float(s.mean(0).norm()) for s in images.vectors]
    assert figures["circular_variance/images"] == pytest.approx(sum(slow) / len(slow), abs=1e-5)
    assert 0 < figures["circular_variance/texts"] < 1


def test_the_shares_of_a_slot_are_seen_after_each_iteration(tiny_bert: str) -> None:
    matcher = build(DIVE, tiny_bert)
    with matcher.inference():
        encoded = (
            matcher.image_encoder(inputs.images(extra=2)),
            matcher.text_encoder(inputs.texts(matcher.tokenizer, extra=2)),
        )
        kept = matcher.keep_images(encoded[0]), matcher.keep_texts(encoded[1])
        views = matcher.see(*kept, encoded)
    for name, side in (("slot_to_region", encoded[0]), ("slot_to_word", encoded[1])):
        weights = views[name].values
        assert weights.shape == (5, 6, 2, 3, side.mask.shape[1])
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]), **CLOSE)
    for i in range(5):
        for j in range(6):
            cosines = kept[0].vectors[i] @ kept[1].vectors[j].T
            torch.testing.assert_close(views["slot_similarity"].values[i, j], cosines, **CLOSE)


def test_without_a_global_feature_nothing_trains_the_gru(tiny_bert: str) -> None:
    matcher = build(CASES["dive-no-global"], tiny_bert)
    assert isinstance(matcher.text_encoder, GRUEncoder)
    assert not any(p.requires_grad for p in matcher.text_encoder.rnn.parameters())
    assert matcher.text_encoder.embed.weight.requires_grad


@pytest.mark.parametrize(("key", "value"), [("slots", 0), ("alpha", 0.0), ("iterations", 0)])
def test_a_setting_out_of_range_is_an_error_that_names_it(key: str, value: float) -> None:
    with pytest.raises(DiptychError, match=rf"recipe.toml: model: {key}: expected"):
        parse(DivEConfig, {"kind": "dive", key: value}, "recipe.toml: model")
