from pathlib import Path

import numpy as np
import pytest
import torch
from diptych.search.models.clip import ClipPreprocess, is_hugging_face
from PIL import Image
from torch import Tensor
from transformers import AutoTokenizer, CLIPModel, SiglipModel

from diptych.common.errors import DiptychError
from diptych.search.models.embedder import load_embedder
from tests.encoders.pictures import picture
from tests.encoders.tiny_models import save, vit
from tests.search import tiny

TEXTS = ["two dog", "a", "a small cat sits left of the big"]
PROCESSOR = {
    "do_resize": True, "size": {"shortest_edge": 32}, "do_center_crop": True, "crop_size": {"height": 32, "width": 32},
    "resample": 3, "image_mean": [0.5, 0.4, 0.3], "image_std": [0.2, 0.3, 0.4],
}  # fmt: skip


def unit(x: Tensor) -> np.ndarray:
    return torch.nn.functional.normalize(x, dim=-1).detach().numpy()


def slow_pixels(image: Image.Image) -> Tensor:
    """As PROCESSOR says, with Pillow alone: shortest edge to 32, the middle of it, normalised."""
    scale = 32 / min(image.size)
    width, height = (32 if s == min(image.size) else int(s * scale) for s in image.size)
    image = image.resize((width, height), Image.Resampling.BICUBIC)
    left, top = (width - 32) // 2, (height - 32) // 2
    values = np.asarray(image.crop((left, top, left + 32, top + 32)), np.float32) / 255
    values = (values - np.array(PROCESSOR["image_mean"])) / np.array(PROCESSOR["image_std"])
    return torch.tensor(values, dtype=torch.float32).permute(2, 0, 1)


def test_clip_as_transformers_computes_it(tmp_path: Path) -> None:
    folder = tiny.save_clip(tmp_path / "clip", PROCESSOR)
    embedder = load_embedder(folder, "cpu")
    model = CLIPModel.from_pretrained(folder).eval()
    images = [picture(70, 40, seed=0), picture(33, 90, seed=1), picture(20, 24, seed=2)]
    pixels = torch.stack([slow_pixels(image) for image in images])
    expected = model.visual_projection(model.vision_model(pixel_values=pixels).pooler_output)
    found = embedder.embed_pictures(images)
    assert found.shape == (3, 1, 6)
    np.testing.assert_allclose(found[:, 0], unit(expected), atol=2e-2)  # resizing may differ by a level
    tokens = AutoTokenizer.from_pretrained(folder)
    for text, vector in zip(TEXTS, embedder.embed_texts(TEXTS), strict=True):
        alone = model.text_projection(model.text_model(**tokens(text, return_tensors="pt")).pooler_output)
        np.testing.assert_allclose(vector, unit(alone), atol=1e-5)


def test_siglip_reads_sentences_padded_to_full_length(tmp_path: Path) -> None:
    folder = tiny.save_siglip(tmp_path / "siglip")
    embedder = load_embedder(folder, "cpu")
    model = SiglipModel.from_pretrained(folder).eval()
    tokens = AutoTokenizer.from_pretrained(folder)
    for text, vector in zip(TEXTS, embedder.embed_texts(TEXTS), strict=True):
        ids = tokens(text, padding="max_length", max_length=12, return_tensors="pt")["input_ids"]
        np.testing.assert_allclose(vector, unit(model.text_model(input_ids=ids).pooler_output), atol=1e-5)
    assert embedder.embed_pictures([picture()]).shape == (1, 1, 12)


def test_long_sentences_are_cut(tmp_path: Path) -> None:
    embedder = load_embedder(tiny.save_clip(tmp_path / "clip"), "cpu")
    assert embedder.embed_texts(["dog " * 50]).shape == (1, 1, 6)


def test_preprocessing_by_its_settings() -> None:
    wide = Image.new("RGB", (100, 50))
    assert ClipPreprocess.read({}, 32)(wide).shape == (32, 32, 3)
    assert ClipPreprocess.read({"size": {"height": 24, "width": 24}}, 32)(wide).shape == (24, 24, 3)
    assert ClipPreprocess.read({"size": 24, "crop_size": 20, "do_center_crop": True}, 32)(wide).shape == (20, 20, 3)
    assert ClipPreprocess.read({"size": {"shortest_edge": 24}, "do_center_crop": False}, 32)(wide).shape == (32, 32, 3)
    # A crop that is larger than the picture has black around it.
    padded = ClipPreprocess(10, (16, 16), 3)(Image.new("RGB", (10, 10), "white"))
    assert padded.shape == (16, 16, 3)
    assert padded[8, 8].tolist() == [255] * 3
    assert padded[0, 0].tolist() == [0] * 3


def test_models_of_one_side_are_refused(tmp_path: Path) -> None:
    folder = save(vit(), tmp_path / "vit")
    assert is_hugging_face(folder)
    with pytest.raises(DiptychError, match="does not embed pictures and sentences"):
        load_embedder(folder, "cpu")
