import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from diptych.data.batches import Pixels, Tokens
from diptych.encoders.images import FeatureConfig, FeatureEncoder
from diptych.encoders.quick import encoders as quick
from diptych.encoders.quick.encoders import quick_images, quick_texts
from diptych.encoders.quick.folded import fold
from diptych.encoders.quick.int8_ranges import measured_ranges, write_ranges
from diptych.encoders.texts import GRUConfig, GRUEncoder, TransformerConfig, TransformerEncoder
from tests.encoders.pictures import picture
from tests.encoders.quick.test_folded import encoder

pytest.importorskip("openvino")

PICTURES = {
    "plain": picture(seed=1),
    "wide": picture(300, 20, seed=2),
    "tiny": picture(2, 1, seed=3),
    "grey": Image.new("L", (50, 40), 90).convert("RGB"),
}


def test_pictures_in_float32_are_the_encoders() -> None:
    whole = encoder(size=70)
    (form,) = quick_images(whole, None)
    assert form.precision == "float32"
    for some in (["plain"], ["wide", "tiny", "grey"], list(PICTURES)):
        pixels = [whole.backbone.prepare(PICTURES[name]) for name in some]
        with torch.inference_mode():
            expected = whole(Pixels(torch.from_numpy(np.stack(pixels))))
        found = form(pixels)
        torch.testing.assert_close(found.vectors, expected.vectors, atol=2e-4, rtol=2e-4)
        assert torch.equal(found.mask, expected.mask)


def test_pictures_in_integers_are_near(tmp_path: Path) -> None:
    whole = encoder(size=70)
    blocks = fold(whole)
    assert blocks is not None
    pixels = [whole.backbone.prepare(image) for image in PICTURES.values()]
    write_ranges(tmp_path, whole, measured_ranges(whole, blocks, pixels))
    small, large = quick_images(whole, tmp_path)
    assert (small.precision, large.precision) == ("int8", "float32")
    near = torch.nn.functional.cosine_similarity(small(pixels).vectors, large(pixels).vectors, -1)
    assert 0.95 < float(near.mean()) < 0.999999
    with torch.no_grad():
        whole.fc.bias.add_(1)  # then the ranges are of other weights
    assert [form.precision for form in quick_images(whole, tmp_path)] == ["float32"]


def test_threads_share_one() -> None:
    whole = encoder()
    (form,) = quick_images(whole, None)
    pixels = [[whole.backbone.prepare(picture(seed=seed))] * (1 + seed % 3) for seed in range(6)]
    expected = [form(some).vectors for some in pixels]
    found: dict[int, torch.Tensor] = {}
    threads = [threading.Thread(target=lambda i=i: found.update({i: form(pixels[i]).vectors})) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, vectors in enumerate(expected):
        torch.testing.assert_close(found[i], vectors, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("pieces", [1, 2, 13, 40])
def test_sentences_are_the_encoders(tiny_bert: str, pieces: int) -> None:
    whole = TransformerEncoder(TransformerConfig(name=tiny_bert), 6, None).eval()
    form = quick_texts(whole)
    assert form is not None
    assert form.most >= 40
    ids = torch.randint(5, 20, (1, pieces))
    with torch.inference_mode():
        expected, found = whole(Tokens(ids, torch.ones_like(ids, dtype=torch.bool))), form(ids)
    torch.testing.assert_close(found.vectors, expected.vectors, atol=1e-4, rtol=1e-4)
    assert expected.whole is not None
    torch.testing.assert_close(found.whole, expected.whole, atol=1e-4, rtol=1e-4)


def test_not_while_training_nor_without_the_runtime(tiny_bert: str, monkeypatch: pytest.MonkeyPatch) -> None:
    images = encoder()
    texts = TransformerEncoder(TransformerConfig(name=tiny_bert), 6, None)
    assert list(quick_images(images.train(), None)) == []
    assert quick_texts(texts.train()) is None
    monkeypatch.setattr(quick, "has_runtime", lambda: False)
    assert list(quick_images(images.eval(), None)) == []
    assert quick_texts(texts.eval()) is None


def test_other_encoders_have_no_quick_form() -> None:
    assert list(quick_images(FeatureEncoder(FeatureConfig(feature_dim=4), 6).eval(), None)) == []
    assert list(quick_images(encoder(cells=1), None)) == []
    assert quick_texts(GRUEncoder(GRUConfig(word_dim=4), 6, ["a", "b"], pretrained=False).eval()) is None
