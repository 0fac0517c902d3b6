"""An embedder's quick forms: the same vectors but for little, or none at all."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from diptych.data.tokens import load_pieces
from diptych.encoders.images import PixelConfig
from diptych.encoders.quick import encoders as quick_encoders
from diptych.encoders.quick.folded import fold
from diptych.encoders.quick.int8_ranges import FILE, measured_ranges, write_ranges
from diptych.encoders.quick.runtime import CompiledGraph
from diptych.encoders.texts import TransformerConfig
from diptych.matchers.base import Matcher
from diptych.matchers.catalog import build_matcher
from diptych.matchers.vse import VSEConfig
from diptych.search.filling.pipeline import MANY, embed_entries
from diptych.search.filling.read_items import picture_of
from diptych.search.filling.walk import FoundFile
from diptych.search.models import quick
from diptych.search.models.embedder import ASKED, Embedder, load_embedder
from tests.encoders.pictures import picture

pytest.importorskip("openvino")

SENTENCES = ["dog", "a red dog sits left of the big blue boat and two cat runs on the small boat", ""]
PICTURES = [picture(seed=1), picture(300, 20, seed=2), picture(2, 1, seed=3), Image.new("RGB", (50, 40), (9, 9, 9))]


@pytest.fixture(scope="module")
def folder(tiny_bert: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """VSE over EfficientNet-Lite and a BERT, with the ranges of its 8-bit form."""
    torch.manual_seed(0)
    image, text = PixelConfig(backbone="efficientnet-lite0", size=64), TransformerConfig(name=tiny_bert)
    config = VSEConfig(dim=8, image=image, text=text, image_pool="gpo", text_pool="gpo")
    made = tmp_path_factory.mktemp("quick") / "model"
    matcher = build_matcher(config, load_pieces(tiny_bert)).eval()
    matcher.save_pretrained(made)
    encoder = matcher.image_encoder
    blocks = fold(encoder)  # type: ignore[arg-type]
    assert blocks is not None
    drawn = [matcher.extractor().prepare(image) for image in [*quick.drawn_pictures(), *PICTURES]]
    write_ranges(made, encoder, measured_ranges(encoder, blocks, drawn))  # type: ignore[arg-type]
    return made


def precision(embedder: Embedder) -> str | None:
    return None if embedder._quick_images is None else embedder._quick_images.precision


def test_pictures_stay_near(folder: Path) -> None:
    embedder = load_embedder(folder, "cpu")
    before, probes = embedder.embed_pictures(PICTURES), [embedder.probe(True), embedder.probe(False)]
    embedder.hasten_pictures()
    assert precision(embedder) == "int8"
    after = embedder.embed_pictures(PICTURES)
    assert (after * before).sum(-1).min() > 0.95
    assert not np.array_equal(after, before)
    np.testing.assert_allclose(np.linalg.norm(after, axis=-1), 1, atol=1e-6)
    # An index knows its model again by the encoder's own vectors, and keeps its own local features.
    assert [embedder.probe(True), embedder.probe(False)] == probes
    pixels = embedder.prepare(PICTURES[0])
    whole = embedder.embed_pixels([pixels], [PICTURES[0].size], locals=True)
    np.testing.assert_allclose(whole.vectors[0], before[0], atol=1e-5)


def test_sentences_stay_the_same(folder: Path) -> None:
    embedder = load_embedder(folder, "cpu")
    before = [embedder.embed_texts([sentence]) for sentence in SENTENCES]
    embedder.hasten_texts()
    assert embedder._quick_texts is not None
    for sentence, expected in zip(SENTENCES, before, strict=True):
        np.testing.assert_allclose(embedder.embed_texts([sentence]), expected, atol=1e-5)
    np.testing.assert_allclose(embedder.embed_texts(SENTENCES), np.concatenate(before), atol=1e-5)
    np.testing.assert_allclose(embedder.embed_texts(SENTENCES * 3)[:3], np.concatenate(before), atol=1e-5)


def test_whoever_asks_again_and_again_is_answered_quickly(folder: Path) -> None:
    embedder = load_embedder(folder, "cpu")
    for turn in range(ASKED):
        assert embedder._quick_texts is None
        embedder.embed_texts([f"dog {turn}"])
    embedder.hasten_texts()  # waits for what was begun
    assert embedder._quick_texts is not None


def test_many_pictures_are_indexed_quickly(folder: Path, tmp_path: Path) -> None:
    for count, expected in ((3, None), (MANY + 8, "int8")):
        embedder = load_embedder(folder, "cpu")
        files = [tmp_path / f"{count}-{i}.png" for i in range(count)]
        for seed, path in enumerate(files):
            picture(40, 30, seed=seed).save(path)
        found = [FoundFile(str(p), "picture", p.stat().st_size, p.stat().st_mtime_ns) for p in files]
        outcomes = [o for some in embed_entries(map(picture_of, found), embedder, batch_size=4) for o in some]
        assert len(outcomes) == count
        assert precision(embedder) == expected


def test_the_matcher_is_left_as_it_is(folder: Path, tmp_path: Path) -> None:
    embedder = load_embedder(folder, "cpu")
    embedder.hasten_pictures()
    embedder.hasten_texts()
    embedder.embed_pictures(PICTURES)
    embedder.matcher.save_pretrained(tmp_path / "again")
    fresh = Matcher.from_pretrained(folder).state_dict()
    again = Matcher.from_pretrained(tmp_path / "again").state_dict()
    assert fresh.keys() == again.keys()
    assert all(torch.equal(fresh[name], again[name]) for name in fresh)
    assert not (tmp_path / "again" / FILE).exists()  # the ranges are of the saved folder's own weights
    images = embedder.matcher.train().encode_images(PICTURES)
    assert not images.vectors.requires_grad
    pixels = torch.randn(1, 3, 64, 64)
    embedder.matcher.image_encoder.backbone(pixels).sum().backward()  # type: ignore[union-attr, operator]
    assert next(embedder.matcher.parameters()).grad is not None


def test_whoever_wants_the_encoders_own_vectors_gets_them(folder: Path) -> None:
    embedder = load_embedder(folder, "cpu", quick=False)
    for _ in range(ASKED + 1):
        embedder.embed_texts(["dog"])
    embedder.hasten_pictures()
    embedder.hasten_texts()
    assert (precision(embedder), embedder._quick_texts) == (None, None)


def test_without_agreement_the_next_form_is_taken_or_none(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quick, "AGREES", 0.99999)  # more than integers can
    embedder = load_embedder(folder, "cpu")
    before = embedder.embed_pictures(PICTURES)
    embedder.hasten_pictures()
    assert precision(embedder) == "float32"
    np.testing.assert_allclose(embedder.embed_pictures(PICTURES), before, atol=1e-4)
    monkeypatch.setattr(quick, "AGREES", 1.1)
    embedder = load_embedder(folder, "cpu")
    embedder.hasten_pictures()
    embedder.hasten_texts()
    assert (precision(embedder), embedder._quick_texts) == (None, None)
    np.testing.assert_allclose(embedder.embed_pictures(PICTURES), before, atol=1e-6)


def test_without_the_runtime_or_where_it_fails_nothing_changes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(graph: object) -> None:
        raise RuntimeError("no such instruction")

    for name, value in (("has_runtime", lambda: False), ("CompiledGraph", fails)):
        with monkeypatch.context() as patch:
            patch.setattr(quick_encoders, name, value)
            embedder = load_embedder(folder, "cpu")
            embedder.hasten_pictures()
            embedder.hasten_texts()
            assert (precision(embedder), embedder._quick_texts) == (None, None)
            assert embedder.embed_texts(SENTENCES).shape == (3, 1, 8)


@pytest.mark.parametrize("step", ["made", "used"])
def test_where_the_8_bit_form_fails_the_next_one_is_taken(
    folder: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    made: list[CompiledGraph] = []

    class FirstFails(CompiledGraph):
        def __init__(self, graph: Any) -> None:
            made.append(self)
            if step == "made" and len(made) == 1:
                raise RuntimeError("no such instruction")
            super().__init__(graph)

        def __call__(self, values: np.ndarray) -> np.ndarray:
            if self is made[0]:
                raise RuntimeError("no such instruction")
            return super().__call__(values)

    monkeypatch.setattr(quick_encoders, "CompiledGraph", FirstFails)
    embedder = load_embedder(folder, "cpu")
    before = embedder.embed_pictures(PICTURES)
    embedder.hasten_pictures()
    assert precision(embedder) == "float32"
    np.testing.assert_allclose(embedder.embed_pictures(PICTURES), before, atol=1e-4)


def test_the_model_that_ships_has_an_8_bit_form() -> None:
    embedder = load_embedder("default", "cpu")
    before = embedder.embed_pictures(PICTURES[:2])
    embedder.hasten_pictures()
    assert precision(embedder) == "int8"
    assert (embedder.embed_pictures(PICTURES[:2]) * before).sum(-1).min() > 0.98
