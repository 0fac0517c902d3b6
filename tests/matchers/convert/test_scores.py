"""A converted checkpoint gives its authors' scores."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from diptych.common.errors import DiptychError
from diptych.data.batches import LocalFeatures, Tokens
from diptych.data.tokens import PieceTokenizer
from diptych.encoders.texts import GRUConfig, TransformerConfig
from diptych.matchers.camp import released_config
from diptych.matchers.convert.convert import convert
from tests.matchers import inputs
from tests.matchers.convert import authors
from tests.matchers.convert.making import (
    all_scores,
    become,
    save,
    small_bert,
    state,
    vocabulary,
    vocabulary_file,
    with_position_ids,
)

CLOSE = {"atol": 1e-5, "rtol": 1e-5}


@pytest.fixture
def images() -> LocalFeatures:
    return inputs.images()


def zero_padded(extra: int = 0) -> LocalFeatures:
    """Pads of 0, as in the batches of DivE's authors, whose pads take part in a set."""
    batch = inputs.images(extra)
    return LocalFeatures(batch.vectors.masked_fill(~batch.mask.unsqueeze(-1), 0), batch.mask)


@pytest.fixture
def words() -> Tokens:
    return inputs.texts(inputs.word_tokenizer())


@pytest.mark.parametrize(
    ("measure", "absolute", "layers"), [("cosine", False, 1), ("order", True, 1), ("order", False, 2)]
)
def test_vsepp(measure: str, absolute: bool, layers: int, images: LocalFeatures, words: Tokens, tmp_path: Path) -> None:
    image, text = authors.Fc(), authors.Words(len(vocabulary()), bidirectional=False, layers=layers)
    path = save(
        tmp_path / "model_best.pth.tar", state(image, text), measure=measure, use_abs=absolute, no_imgnorm=False
    )
    matcher = become(path, "vse++", vocabulary=vocabulary_file(tmp_path))
    theirs = authors.vsepp_scores(image, text, images, words, measure == "order", absolute)
    torch.testing.assert_close(all_scores(matcher, images, words), theirs, **CLOSE)
    assert matcher.config.text == GRUConfig(word_dim=authors.W, bidirectional=False, layers=layers)


@pytest.mark.parametrize("direction", ["t2i", "i2t"])
@pytest.mark.parametrize(("aggregation", "bidirectional"), [("Mean", True), ("LogSumExp", False)])
def test_scan(
    direction: str, aggregation: str, bidirectional: bool, images: LocalFeatures, words: Tokens, tmp_path: Path
) -> None:
    image, text = authors.Fc(), authors.Words(len(vocabulary()), bidirectional)
    opt = {"cross_attn": direction, "agg_func": aggregation, "lambda_softmax": 7.0, "lambda_lse": 20.0}
    path = save(tmp_path / "scan.pth.tar", state(image, text), raw_feature_norm="clipped_l2norm", **opt)
    matcher = become(path, "scan", vocabulary=vocabulary_file(tmp_path))
    theirs = authors.scan_scores(image, text, images, words, direction, aggregation, 7.0, 20.0)
    torch.testing.assert_close(all_scores(matcher, images, words), theirs, **CLOSE)


@pytest.mark.parametrize("direction", ["t2i", "i2t"])
@pytest.mark.parametrize("aggregation", ["Mean", "LogSumExp", "Max", "Sum"])
@pytest.mark.parametrize(
    "norm", ["clipped_l2norm", "softmax", "l2norm", "l1norm", "clipped_l1norm", "clipped", "no_norm"]
)
def test_scan_in_all_ways_that_its_settings_can_say(
    direction: str, aggregation: str, norm: str, images: LocalFeatures, words: Tokens, tmp_path: Path
) -> None:
    image, text = authors.Fc(), authors.Words(len(vocabulary()))
    opt = {"cross_attn": direction, "agg_func": aggregation, "lambda_softmax": 7.0, "lambda_lse": 5.0}
    path = save(tmp_path / "scan.pth.tar", state(image, text), raw_feature_norm=norm, **opt)
    matcher = convert(path, "scan", vocabulary_file(tmp_path)).matcher
    theirs = authors.scan_scores(image, text, images, words, direction, aggregation, 7.0, 5.0, norm)
    torch.testing.assert_close(all_scores(matcher, images, words), theirs, **CLOSE)


def test_vse_infinity_with_regions_and_words(images: LocalFeatures, words: Tokens, tmp_path: Path) -> None:
    image, text = authors.shake(authors.InfinityRegions()), authors.Words(len(vocabulary()), gpool=True)
    path = save(tmp_path / "infinity.pth", state(image, text), no_imgnorm=False, no_txtnorm=False)
    matcher = become(path, "vse-infinity", vocabulary=vocabulary_file(tmp_path))
    theirs = image(images) @ authors.infinity_words(text, words).T
    torch.testing.assert_close(all_scores(matcher, images, words), theirs, **CLOSE)


def test_vse_infinity_with_regions_and_bert(images: LocalFeatures, tiny_bert: str, tmp_path: Path) -> None:
    tokenizer = PieceTokenizer.load(tiny_bert)
    image, text = authors.shake(authors.InfinityRegions()), authors.InfinityPieces(small_bert(tokenizer.size))
    path = save(tmp_path / "infinity.pth", [image.state_dict(), with_position_ids(text.state_dict())])
    matcher = become(path, "vse-infinity", tokenizer=tiny_bert)
    pieces = inputs.texts(tokenizer)
    theirs = image(images) @ text(pieces).T
    torch.testing.assert_close(all_scores(matcher, images, pieces), theirs, **CLOSE)
    assert isinstance(matcher.config.text, TransformerConfig)
    assert "/" not in matcher.config.text.name  # no path of the machine that converted it
    assert matcher.encode_texts(["a red dog"]).vectors.shape == (1, 1, authors.D)


@pytest.mark.parametrize(("source", "groups"), [("detector", 1), ("imagenet", 1), ("wsl", 2)])
@pytest.mark.parametrize("size", [64, 76])
def test_vse_infinity_with_a_grid(source: str, groups: int, size: int, words: Tokens, tmp_path: Path) -> None:
    image, text = authors.shake(authors.InfinityGrid(groups)), authors.Words(len(vocabulary()), gpool=True)
    opt = {"backbone_source": source, "input_scale_factor": size / 256, "precomp_enc_type": "backbone"}
    path = save(tmp_path / "grid.pth", state(image, text), **opt)
    matcher = become(path, "vse-infinity", vocabulary=vocabulary_file(tmp_path))
    pictures = np.random.default_rng(0).integers(0, 256, (3, size, size, 3), dtype=np.uint8)
    pixels = torch.from_numpy(pictures).float()
    if source == "detector":
        pixels = pixels.flip(-1) - torch.tensor([102.9801, 115.9465, 122.7717])
    else:
        pixels = (pixels / 255 - torch.tensor([0.485, 0.456, 0.406])) / torch.tensor([0.229, 0.224, 0.225])
    theirs = image(pixels.permute(0, 3, 1, 2)) @ authors.infinity_words(text, words).T
    with matcher.inference():
        ours = matcher.score(
            matcher.encode_images([Image.fromarray(p) for p in pictures]),
            matcher.keep_texts(matcher.text_encoder(words)),
        )
    torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=1e-5)
    rows, columns = matcher.extractor().grid
    assert rows * columns == image.backbone.top(image.backbone.base(pixels.permute(0, 3, 1, 2))).flatten(2).shape[2]


@pytest.mark.parametrize(
    ("pool", "similarity", "alpha"), [("rnn", "smooth_chamfer", 16.0), ("max", "chamfer", 16.0), ("rnn", "max", 16.0)]
)
@pytest.mark.parametrize("extra", [0, 3])
def test_dive_with_words(pool: str, similarity: str, alpha: float, extra: int, tmp_path: Path) -> None:
    """Padding as in their batches, which changes the sets that they predict."""
    model = authors.shake(authors.DivE(authors.DivEImage(4, 3), authors.DivEWords(len(vocabulary()), 4, 3)))
    opt = {"txt_pooling": pool, "loss": similarity, "temperature": alpha, "img_res_pool": "max", "denominator": 2.0}
    path = save(tmp_path / "dive.pth", model.state_dict(), **opt)
    matcher = become(path, "dive", vocabulary=vocabulary_file(tmp_path))
    images, words = zero_padded(extra), inputs.texts(inputs.word_tokenizer(), extra)
    theirs = authors.set_scores(model.img_enc(images), model.txt_enc(words, pool), similarity, alpha)
    torch.testing.assert_close(all_scores(matcher, images, words), theirs, **CLOSE)
    assert matcher.config.legacy_mask
    assert (matcher.config.iterations, matcher.config.slots, matcher.config.feed_forward) == (4, 4, 3)


def test_dive_without_the_mask_that_it_was_trained_with(tmp_path: Path) -> None:
    model = authors.shake(authors.DivE(authors.DivEImage(4, 3), authors.DivEWords(len(vocabulary()), 4, 3)))
    path = save(tmp_path / "dive.pth", model.state_dict(), img_res_pool="max")
    options, scores = {"legacy_mask": False}, []
    converted = convert(path, "dive", vocabulary_file(tmp_path), options=options)
    for extra in (0, 3):
        batch = zero_padded(extra), inputs.texts(inputs.word_tokenizer(), extra)
        scores.append(all_scores(converted.matcher, *batch))
    torch.testing.assert_close(scores[0], scores[1], **CLOSE)  # padding changes nothing
    assert not converted.matcher.config.legacy_mask
    assert converted.settings["legacy_mask"] == "False, given"
    assert not any("legacy_mask` is on" in note for note in converted.notes)
    with pytest.raises(DiptychError, match=r"opt\.legacy_mask: expected true or false, got 3"):
        convert(path, "dive", vocabulary_file(tmp_path), options={"legacy_mask": 3})


@pytest.mark.parametrize("pool", ["cls", "max"])
def test_dive_with_bert(pool: str, tiny_bert: str, tmp_path: Path) -> None:
    images, tokenizer = zero_padded(), PieceTokenizer.load(tiny_bert)
    text = authors.DivEPieces(small_bert(tokenizer.size), 2, 6)
    model = authors.shake(authors.DivE(authors.DivEImage(2, 6), text))
    path = save(tmp_path / "dive.pth", model.state_dict(), txt_pooling=pool, temperature=16)
    matcher = become(path, "dive", tokenizer=tiny_bert, options={"heads": 2})
    pieces = inputs.texts(tokenizer)
    theirs = authors.set_scores(model.img_enc(images), text(pieces, pool), "smooth_chamfer", 16)
    torch.testing.assert_close(all_scores(matcher, images, pieces), theirs, **CLOSE)


@pytest.mark.parametrize(
    ("module", "fusion"),
    [
        ("cross_attention", "concat"),
        ("gate_fusion", "sum"),
        ("gate_fusion", "concat"),
        ("gate_fusion_new", "sum"),
        ("gate_fusion_new", "concat"),
    ],
)
def test_camp(module: Any, fusion: str, images: LocalFeatures, words: Tokens, tmp_path: Path) -> None:
    image, text, pair = authors.Fc(), authors.Words(len(vocabulary())), authors.Pair(module, fusion)
    authors.loud(pair)
    path = save(tmp_path / "camp.pth.tar", state(image, text, pair), measure=module, no_imgnorm=True, no_txtnorm=True)
    matcher = become(path, "camp", vocabulary=vocabulary_file(tmp_path))
    theirs = authors.camp_scores(image, text, pair, images, words)
    torch.testing.assert_close(all_scores(matcher, images, words), theirs, **CLOSE)
    ours = "concat" if fusion == "concat" else "add"
    assert matcher.config == released_config(module, ours, authors.D, matcher.config.image, matcher.config.text)


def test_camp_with_another_number_of_heads(images: LocalFeatures, words: Tokens, tmp_path: Path) -> None:
    image, text, pair = authors.Fc(), authors.Words(len(vocabulary())), authors.Pair("gate_fusion", "sum", heads=2)
    path = save(tmp_path / "camp.pth.tar", state(image, text, pair))
    converted = convert(path, "camp", vocabulary_file(tmp_path))
    theirs = authors.camp_scores(image, text, pair, images, words)
    torch.testing.assert_close(all_scores(converted.matcher, images, words), theirs, **CLOSE)
