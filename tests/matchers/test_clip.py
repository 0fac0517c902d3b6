"""CLIP and SigLIP beside what transformers computes; and as matchers like any other."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from transformers import AutoTokenizer, CLIPModel, SiglipModel

from diptych.common.errors import DiptychError
from diptych.data.batches import Pixels
from diptych.encoders.huggingface_vision import HuggingFaceBackbone
from diptych.encoders.images import PixelConfig
from diptych.encoders.texts import TransformerConfig
from diptych.evaluation.evaluate import evaluate_matcher
from diptych.explain.explain import explain
from diptych.matchers.base import Matcher
from diptych.matchers.camp import CAMPConfig
from diptych.matchers.catalog import MatcherConfig, build_matcher, build_tokenizer
from diptych.matchers.clip import CLIP, pretrained_towers
from diptych.matchers.dive import DivEConfig
from diptych.matchers.mmca import MMCAConfig
from diptych.matchers.scan import SCANConfig
from diptych.matchers.vse import VSEConfig
from diptych.search.models.embedder import load_embedder
from diptych.training.data import ScenesConfig, load_splits
from diptych.training.loop import Device, train
from diptych.training.losses.info_nce import InfoNCEConfig
from diptych.training.optimisation import OptimiserConfig
from diptych.training.recipe import Recipe, TrainingConfig
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


@pytest.fixture(scope="module")
def clip_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return tiny.save_clip(tmp_path_factory.mktemp("clip") / "clip", PROCESSOR)


@pytest.fixture(scope="module")
def siglip_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return tiny.save_siglip(tmp_path_factory.mktemp("siglip") / "siglip")


def test_clip_as_transformers_computes_it(clip_folder: str) -> None:
    matcher = Matcher.from_pretrained(clip_folder)
    model = CLIPModel.from_pretrained(clip_folder).eval()
    images = [picture(70, 40, seed=0), picture(33, 90, seed=1), picture(20, 24, seed=2)]
    pixels = torch.stack([slow_pixels(image) for image in images])
    expected = unit(model.visual_projection(model.vision_model(pixel_values=pixels).pooler_output))
    kept = matcher.encode_images(images)
    assert kept.vectors.shape == (3, 1, 6)
    np.testing.assert_allclose(kept.vectors[:, 0], expected, atol=2e-2)  # resizing may differ by a level
    tokens = AutoTokenizer.from_pretrained(clip_folder)
    texts = matcher.encode_texts(TEXTS)
    for text, vectors in zip(TEXTS, texts.vectors, strict=True):
        alone = model.text_projection(model.text_model(**tokens(text, return_tensors="pt")).pooler_output)
        np.testing.assert_allclose(vectors, unit(alone), atol=1e-5)
    np.testing.assert_allclose(matcher.score(kept, texts), kept.vectors[:, 0] @ texts.vectors[:, 0].T, atol=1e-6)


def test_siglip_reads_sentences_padded_to_full_length(siglip_folder: str) -> None:
    matcher = Matcher.from_pretrained(siglip_folder)
    model = SiglipModel.from_pretrained(siglip_folder).eval()
    tokens = AutoTokenizer.from_pretrained(siglip_folder)
    for text, vectors in zip(TEXTS, matcher.encode_texts(TEXTS).vectors, strict=True):
        ids = tokens(text, padding="max_length", max_length=12, return_tensors="pt")["input_ids"]
        np.testing.assert_allclose(vectors, unit(model.text_model(input_ids=ids).pooler_output), atol=1e-5)
    pixels = torch.from_numpy(matcher.extractor().prepare(picture()))[None].permute(0, 3, 1, 2) / 255
    alone = model.vision_model(pixel_values=(pixels - 0.5) / 0.5).pooler_output
    np.testing.assert_allclose(matcher.encode_images([picture()]).vectors[:, 0], unit(alone), atol=1e-4)


def test_long_sentences_are_cut(clip_folder: str) -> None:
    assert Matcher.from_pretrained(clip_folder).encode_texts(["dog " * 50]).vectors.shape == (1, 1, 6)


def test_models_of_one_side_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DiptychError, match="does not embed pictures and sentences"):
        Matcher.from_pretrained(save(vit(), tmp_path / "vit"))


def test_the_dimension_is_the_models_own(clip_folder: str) -> None:
    config = replace(pretrained_towers(clip_folder), dim=7)
    with pytest.raises(DiptychError, match=r"dim: the vectors of .* have 6 dimensions; got 7"):
        build_matcher(config, build_tokenizer(config.text, None))


def test_both_towers_are_of_one_model(clip_folder: str, siglip_folder: str) -> None:
    config = pretrained_towers(clip_folder)
    with pytest.raises(ValueError, match="expected the other tower"):
        replace(config, text=replace(config.text, name=siglip_folder))


@pytest.mark.parametrize("kind", ["clip", "siglip"])
def test_an_explanation_shows_patches_and_what_painting_over_them_does(
    kind: str, clip_folder: str, siglip_folder: str
) -> None:
    matcher = Matcher.from_pretrained(clip_folder if kind == "clip" else siglip_folder)
    image, sentence = picture(64, 48, seed=4), "two dog"
    found = explain(matcher, image, sentence)
    assert found.words == ("two", "dog")
    assert found.grid == (4, 4)
    assert found.boxes is not None
    # CLIP's processor sees the middle square of the picture, SigLIP's all of it.
    expected = [5 * 64 / 42, 0, 13 * 64 / 42, 12] if kind == "clip" else [0, 0, 16, 12]  # 64 x 48 becomes 42 x 32
    np.testing.assert_allclose(found.boxes[0], expected, rtol=1e-6)
    fit, drop = found.array("region_fit"), found.array("region_drop")
    assert fit is not None
    assert drop is not None
    with matcher.inference():
        pixels = torch.from_numpy(matcher.extractor().prepare(image).copy())[None]
        encoded = matcher.image_encoder(Pixels(pixels))
        text = matcher.encode_texts([sentence]).vectors[0, 0]
        for region in (0, 5, 15):
            patch = encoded.vectors[0, region]
            assert fit[region] == pytest.approx(float(patch @ text / patch.norm()), abs=1e-5)
            row, column = divmod(region, 4)
            hidden = pixels.clone()
            hidden[0, 8 * row : 8 * row + 8, 8 * column : 8 * column + 8] = pixels.float().mean((0, 1, 2)).byte()
            kept = matcher.keep_images(matcher.image_encoder(Pixels(hidden)))
            alone = float(kept.vectors[0, 0] @ text)
            assert drop[region] == pytest.approx(found.score - alone, abs=1e-5)


def test_it_is_fine_tuned_evaluated_indexed_and_saved_like_any_other(clip_folder: str, tmp_path: Path) -> None:
    config = pretrained_towers(clip_folder)
    recipe = Recipe(
        name="clip",
        model=config,
        data=ScenesConfig(train=8, validation=4, test=4, regions="none"),
        loss=InfoNCEConfig(),
        training=TrainingConfig(epochs=1, batch_size=4, augment=True, optimiser=OptimiserConfig(lr=1e-3)),
    )
    outcome = train(recipe, tmp_path / "run", Device("cpu"))
    assert outcome.finished
    tuned, before = Matcher.from_pretrained(tmp_path / "run" / "best"), Matcher.from_pretrained(clip_folder)
    assert isinstance(tuned, CLIP)
    moved = [n for n, p in tuned.named_parameters() if not torch.equal(p, before.get_parameter(n))]
    assert any(n.startswith("image_encoder") for n in moved)
    assert any(n.startswith("text_encoder") for n in moved)
    split = load_splits(recipe.data).test
    assert 0 <= evaluate_matcher(tuned, split).figures["rsum"] <= 600
    embedder = load_embedder(str(tmp_path / "run"), "cpu")
    assert embedder.layout.dim == 6
    np.testing.assert_allclose(
        embedder.embed_pictures([picture()])[:, 0], tuned.encode_images([picture()]).vectors[:, 0], atol=1e-6
    )
    # Its own patch tokens come along for whoever re-ranks over them; those of a model of the hub are not the tower's.
    assert embedder.locals_source is not None
    pixels = [embedder.prepare(picture())]
    locals_ = embedder.embed_pixels(pixels, [picture().size], locals=True).locals
    assert locals_ is not None
    regions = embedder.locals_source.load().regions([picture()])[0]
    np.testing.assert_allclose(locals_[0], regions.vectors, atol=1e-2)
    assert load_embedder(clip_folder, "cpu").locals_source is None


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("name", ["scan", "camp", "mmca", "vse", "dive"])
def test_its_tokens_are_what_another_matcher_is_trained_over(
    name: str, frozen: bool, clip_folder: str, tmp_path: Path
) -> None:
    image = PixelConfig(backbone=clip_folder, size=32, frozen=frozen)
    text = TransformerConfig(name=clip_folder, frozen=frozen, limit=12)
    configs: dict[str, MatcherConfig] = {
        "scan": SCANConfig(dim=8, image=image, text=text),
        "camp": CAMPConfig(dim=8, image=image, text=text),
        "mmca": MMCAConfig(dim=8, heads=2, filters=4, image=image, text=text),
        "vse": VSEConfig(dim=8, image=image, text=text, image_pool="gpo", text_pool="gpo"),
        "dive": DivEConfig(dim=8, image=image, text=text, slots=2, iterations=2, heads=2, head_dim=4),
    }
    recipe = Recipe(
        name=name,
        model=configs[name],
        data=ScenesConfig(train=4, validation=2, test=2, regions="none"),
        loss=InfoNCEConfig(),
        training=TrainingConfig(epochs=1, batch_size=2),
    )
    assert train(recipe, tmp_path / "run", Device("cpu")).finished
    again = Matcher.from_pretrained(tmp_path / "run" / "best")
    pictures = [picture(40, 30, seed=i) for i in range(2)]
    cells = again.image_encoder.backbone.regions(pictures)  # type: ignore[union-attr]
    assert cells[0].vectors.shape == (16, 12)
    assert again.similarity(pictures, TEXTS).shape == (2, 3)
    if frozen:
        ours = HuggingFaceBackbone.load(clip_folder, 32).regions(pictures)[0].vectors
        np.testing.assert_allclose(cells[0].vectors, ours, atol=1e-5)
