"""MMCA against a loop written from its formulas: one pair, one head, one row, one window at a time."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from diptych.common.config import parse
from diptych.common.errors import DiptychError
from diptych.encoders.convolutions import TextCNN
from diptych.encoders.texts import TransformerConfig, TransformerEncoder
from diptych.encoders.transformer_unit import TransformerUnit
from diptych.matchers.catalog import build_tokenizer
from diptych.matchers.kept import Kept
from diptych.matchers.mmca import MMCA, MMCAConfig
from tests.encoders.slow_sets import layer_norm
from tests.matchers import inputs
from tests.matchers.cases_mmca import CASES, WORDS
from tests.matchers.cases_mmca import MMCA as PAPER

CLOSE = {"atol": 1e-5, "rtol": 1e-5}
PADS = {
    "mmca-convolve-pads": replace(PAPER, convolve_pads=True),
    "mmca-convolve-pads-gru": replace(WORDS, convolve_pads=True, convolutions="shared"),
}


def build(config: MMCAConfig, tiny_bert: str) -> MMCA:
    if isinstance(config.text, TransformerConfig):
        config = replace(config, text=replace(config.text, name=tiny_bert))
        tokenizer = build_tokenizer(config.text, None)
    else:
        tokenizer = inputs.word_tokenizer()
    torch.manual_seed(3)
    matcher = MMCA(config, tokenizer).eval()
    with torch.no_grad():
        for name, parameter in matcher.named_parameters():
            if not name.startswith("text_encoder"):
                parameter.add_(0.1 * torch.randn_like(parameter))
    return matcher


def slow_unit(
    unit: TransformerUnit, rows: list[Tensor], config: MMCAConfig, real: int | None = None
) -> tuple[list[Tensor], Tensor]:
    """The unit's output rows, and its weights averaged over heads; only the first `real` rows are attended to."""
    d, heads = config.dim, config.heads
    size = d // heads
    divisor = math.sqrt(size) if config.scale == "head" else math.sqrt(d)
    seen = range(len(rows) if real is None else real)
    outputs, mean_weights = [], torch.zeros(len(rows), len(seen))
    for i, x in enumerate(rows):
        parts = []
        for h in range(heads):
            part = slice(h * size, (h + 1) * size)
            query = unit.query.weight[part] @ x
            e = torch.stack([torch.exp((query * (unit.key.weight[part] @ rows[j])).sum() / divisor) for j in seen])
            weights = e / e.sum()
            parts.append(torch.stack([weights[j] * (unit.value.weight[part] @ rows[j]) for j in seen]).sum(0))
            mean_weights[i] += weights.detach() / heads
        y = layer_norm(x + unit.output.weight @ torch.cat(parts), unit.norm1)
        ffn = unit.fc2.weight @ torch.relu(unit.fc1.weight @ y + unit.fc1.bias) + unit.fc2.bias
        outputs.append(layer_norm(y + ffn, unit.norm2))
    return outputs, mean_weights


def unit_vector(x: Tensor) -> Tensor:
    return x / x.pow(2).sum().sqrt()


def slow_cnn(cnn: TextCNN, words: list[Tensor]) -> Tensor:
    """c of one sentence: windows of 1, 2 and 3 words from each word on, zeros past the end."""
    pooled = []
    for convolution in cnn.convolutions:
        width = convolution.kernel_size[0]
        windows = []
        for k in range(len(words)):
            p = convolution.bias
            for j in range(width):
                if k + j < len(words):
                    p = p + convolution.weight[:, :, j] @ words[k + j]
            windows.append(torch.relu(p))
        pooled.append(torch.stack(windows).amax(0))
    out = cnn.fc.weight @ torch.cat(pooled) + cnn.fc.bias
    return unit_vector(out) if cnn.norm is None else layer_norm(out, cnn.norm)


def slow_score(matcher: MMCA, i: int, t: int) -> tuple[Tensor, Tensor]:
    """S(I, T) of picture i and sentence t, and the cross unit's weights over regions and words."""
    config = matcher.config
    batch, tokens = inputs.images(), inputs.texts(matcher.tokenizer)
    fc = matcher.image_encoder.fc
    regions = [fc.weight @ o + fc.bias for o in batch.vectors[i][batch.mask[i]]]
    if config.normalise:
        regions = [config.dim**0.5 * unit_vector(x) for x in regions]
    attended, _ = slow_unit(matcher.self_unit, regions, config)
    i0 = unit_vector(torch.stack(attended).mean(0))

    encoded = matcher.text_encoder(tokens)
    real = int(tokens.mask[t].sum())
    length = tokens.mask.shape[1] if config.convolve_pads else real
    states = list(encoded.vectors[t, :length])
    if config.normalise:
        states = [config.dim**0.5 * unit_vector(x) for x in states]
    if isinstance(matcher.text_encoder, TransformerEncoder) and config.convolutions == "separate":
        c0 = slow_cnn(matcher.text_cnn, list(encoded.inputs[t, :length]))
    else:
        c0 = slow_cnn(matcher.text_cnn, states)
    if config.alpha == 0:
        return (i0 * c0).sum(), torch.empty(0)

    assert matcher.cross_unit is not None
    stacked = (attended if config.cross_input == "self-attended" else regions) + states
    crossed, weights = slow_unit(matcher.cross_unit, stacked, config, real=len(regions) + real)
    i1 = unit_vector(torch.stack(crossed[: len(regions)]).mean(0))
    c1 = slow_cnn(matcher.cross_cnn or matcher.text_cnn, crossed[len(regions) :])
    return (i0 * c0).sum() + config.alpha * (i1 * c1).sum(), weights


@pytest.mark.parametrize("name", sorted({**CASES, **PADS}))
def test_scores_and_gradients_are_those_of_the_loop(name: str, tiny_bert: str) -> None:
    matcher = build({**CASES, **PADS}[name], tiny_bert)
    images, texts = inputs.kept_images(matcher), inputs.kept_texts(matcher)
    fast = matcher.score(images, texts)
    pairs = [(0, 0), (1, 1), (1, 2), (2, 1), (3, 2), (4, 5)]  # one region, one word, and the longest among them
    rows, columns = map(list, zip(*pairs, strict=True))
    slow = torch.stack([slow_score(matcher, i, t)[0] for i, t in pairs])
    torch.testing.assert_close(fast[rows, columns], slow, **CLOSE)
    torch.testing.assert_close(matcher.score_pairs(images[rows], texts[columns]), slow, **CLOSE)

    weights = torch.randn(len(pairs))
    names, parameters = zip(*((n, p) for n, p in matcher.named_parameters() if p.requires_grad), strict=True)
    got = torch.autograd.grad((fast[rows, columns] * weights).sum(), parameters)
    expected = torch.autograd.grad((slow * weights).sum(), parameters)
    for parameter, g, e in zip(names, got, expected, strict=True):
        torch.testing.assert_close(g, e, atol=1e-5, rtol=1e-3, msg=lambda m, name=parameter: f"{name}: {m}")


@pytest.mark.parametrize("sharp", [1.0, 30.0])
@pytest.mark.parametrize("name", sorted(CASES))
def test_without_gradients_scores_are_the_same(name: str, sharp: float, tiny_bert: str) -> None:
    matcher = build(CASES[name], tiny_bert)
    if matcher.cross_unit is not None:
        with torch.no_grad():
            matcher.cross_unit.query.weight.mul_(sharp)
    with torch.no_grad():
        images, texts = inputs.kept_images(matcher, extra=2), inputs.kept_texts(matcher, extra=3)
        # Ragged sides, sides without padding, one item each.
        for seen, told in ((images, texts), (images[[1]].trim(), texts[[2]].trim()), (images[[2]], texts)):
            with torch.enable_grad():
                expected = matcher.score(seen, told).detach()
            torch.testing.assert_close(matcher.score(seen, told), expected, **CLOSE)


@pytest.mark.parametrize("name", sorted(PADS))
def test_convolutions_that_see_pads_give_scores_that_move_with_them(name: str, tiny_bert: str) -> None:
    matcher = build(PADS[name], tiny_bert)
    with matcher.inference():
        images = inputs.kept_images(matcher)
        few = matcher.score(images, inputs.kept_texts(matcher))
        many = matcher.score(images, inputs.kept_texts(matcher, extra=6))
    assert (few - many).abs().max() > 1e-3


def test_attention_is_the_cross_units_softmax_over_both_sides(tiny_bert: str) -> None:
    matcher = build(PAPER, tiny_bert)
    tokens = inputs.texts(matcher.tokenizer)
    with matcher.inference():
        images, texts = inputs.kept_images(matcher, extra=2), matcher.keep_texts(matcher.text_encoder(tokens))
        attention = {name: view.values for name, view in matcher.see(images, texts).items()}
    assert attention["word_to_region"].shape == (5, 6, tokens.mask.shape[1], 7)
    assert attention["region_to_word"].shape == (5, 6, 7, tokens.mask.shape[1])
    for i, regions in enumerate(inputs.REGIONS):
        for t in range(len(tokens)):
            words = int(tokens.mask[t].sum())
            _, weights = slow_score(matcher, i, t)
            torch.testing.assert_close(
                attention["word_to_region"][i, t, :words, :regions], weights[regions:, :regions], **CLOSE
            )
            torch.testing.assert_close(
                attention["region_to_word"][i, t, :regions, :words], weights[:regions, regions:], **CLOSE
            )
            assert not attention["word_to_region"][i, t, words:].any()
            assert not attention["word_to_region"][i, t, :, regions:].any()
            assert not attention["region_to_word"][i, t, regions:].any()
            assert not attention["region_to_word"][i, t, :, words:].any()


@pytest.mark.parametrize("config", [PAPER, CASES["mmca-normalised"]], ids=["as they come", "normalised"])
def test_self_attention_is_shown_too(config: MMCAConfig, tiny_bert: str) -> None:
    matcher = build(config, tiny_bert)
    batch = inputs.images(extra=1)
    with matcher.inference():
        encoded = matcher.image_encoder(batch), matcher.text_encoder(inputs.texts(matcher.tokenizer))
        kept = matcher.keep_images(encoded[0]), matcher.keep_texts(encoded[1])
        weights = matcher.see(*kept, encoded)["region_to_region"].values[:, 0]
        fc = matcher.image_encoder.fc
        for i, regions in enumerate(inputs.REGIONS):
            rows = [fc.weight @ o + fc.bias for o in batch.vectors[i, :regions]]
            rows = [config.dim**0.5 * unit_vector(x) for x in rows] if config.normalise else rows
            slow = slow_unit(matcher.self_unit, rows, matcher.config)[1]
            torch.testing.assert_close(weights[i, :regions, :regions], slow, **CLOSE)
    assert not weights.masked_select(~batch.mask.unsqueeze(1)).any()
    assert not weights.masked_select(~batch.mask.unsqueeze(2)).any()


def test_normalised_scores_do_not_depend_on_how_long_regions_and_words_come(tiny_bert: str) -> None:
    matcher = build(CASES["mmca-normalised-gru"], tiny_bert)
    batch, tokens = inputs.images(), inputs.texts(matcher.tokenizer)
    with matcher.inference():
        regions, words = matcher.image_encoder(batch), matcher.text_encoder(tokens)
        expected = matcher.score(matcher.keep_images(regions), matcher.keep_texts(words))
        longer, shorter = replace(regions, vectors=100 * regions.vectors), replace(words, vectors=words.vectors / 100)
        found = matcher.score(matcher.keep_images(longer), matcher.keep_texts(shorter))
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_at_alpha_0_the_cross_part_is_not_built(tiny_bert: str) -> None:
    matcher = build(CASES["mmca-alpha-0"], tiny_bert)
    names = [name for name, _ in matcher.named_parameters()]
    assert not any(name.startswith(("cross", "text_encoder.fc")) for name in names)
    with matcher.inference():
        images, texts = inputs.kept_images(matcher), inputs.kept_texts(matcher)
        assert type(images) is Kept
        assert images.vectors.shape == (5, 1, 8)
        assert matcher.see(images, texts) == {}


def test_alpha_weighs_the_cross_part_and_nothing_else(tiny_bert: str) -> None:
    parts = []
    for alpha in (0.2, 0.4, 0.8):
        matcher = build(replace(WORDS, alpha=alpha), tiny_bert)
        parts.append(matcher.similarity([v.numpy() for v in inputs.images().vectors], inputs.SENTENCES))
    torch.testing.assert_close((parts[2] - parts[1]) / 0.4, (parts[1] - parts[0]) / 0.2, atol=1e-5, rtol=1e-4)
    assert (parts[1] - parts[0]).abs().max() > 0.01


def test_a_limit_cuts_word_pieces(tiny_bert: str) -> None:
    matcher = build(CASES["mmca-limit-4"], tiny_bert)
    assert matcher.encode_texts(inputs.SENTENCES).mask.shape[1] == 4


def test_keeping_the_text_encoders_width_needs_it(tiny_bert: str) -> None:
    with pytest.raises(DiptychError, match="'keep' needs dim = 16"):
        build(replace(PAPER, text_projection="keep"), tiny_bert)


def test_things_of_another_matcher_are_an_error(tiny_bert: str) -> None:
    plain = Kept(torch.ones(1, 3, 8), torch.ones(1, 3, dtype=torch.bool))
    with pytest.raises(DiptychError, match="keep_images"):
        build(PAPER, tiny_bert).score(plain, plain)


@pytest.mark.parametrize(("key", "value"), [("heads", 3), ("heads", 0), ("alpha", -0.1)])
def test_a_setting_out_of_range_is_an_error_that_names_it(key: str, value: float) -> None:
    with pytest.raises(DiptychError, match=rf"recipe.toml: model: {key}: expected"):
        parse(MMCAConfig, {"kind": "mmca", key: value}, "recipe.toml: model")


def test_a_sentence_of_one_word_has_all_three_widths() -> None:
    cnn = TextCNN(4, 5, 6)
    word = torch.randn(1, 1, 4)
    padded = torch.cat([word, torch.full((1, 3, 4), 50.0)], 1)
    mask = torch.tensor([[True, False, False, False]])
    expected = slow_cnn(cnn, [word[0, 0]])
    torch.testing.assert_close(cnn(word, mask[:, :1])[0], expected, **CLOSE)
    torch.testing.assert_close(cnn(padded, mask)[0], expected, **CLOSE)


@pytest.mark.parametrize("dim", [8, 16])
def test_there_are_as_many_filters_as_dimensions(dim: int, tiny_bert: str) -> None:
    """Eq. 7: the Linear after the convolutions is (d, 3 d)."""
    matcher = build(replace(PAPER, dim=dim, filters=None), tiny_bert)
    assert matcher.text_cnn.fc.weight.shape == (dim, 3 * dim)
    assert matcher.cross_cnn is not None
    assert matcher.cross_cnn.fc.weight.shape == (dim, 3 * dim)
