from pathlib import Path

import pytest
import torch

from diptych.common.errors import DiptychError
from diptych.common.files import write_json
from diptych.data.tokens import WordTokenizer
from diptych.data.vocabulary import Vocabulary
from diptych.encoders.backbones import Backbone, load_backbone
from diptych.encoders.images import FeatureConfig, PixelConfig
from diptych.encoders.texts import GRUConfig
from diptych.matchers.vse import VSE, VSEConfig
from tests.encoders.pictures import picture
from tests.encoders.tiny_models import save, stirred, vit


def matcher(image: PixelConfig | FeatureConfig) -> VSE:
    tokenizer = WordTokenizer(Vocabulary.build(["a dog"], at_least=1))
    return VSE(VSEConfig(dim=8, image=image, text=GRUConfig(word_dim=4)), tokenizer)


def same(first: Backbone, second: Backbone) -> bool:
    pixels = torch.randn(1, 3, first.size, first.size)
    with torch.no_grad():
        return torch.equal(first.eval()(pixels), second.eval()(pixels))


def test_a_saved_matchers_tuned_backbone_is_a_backbone(tmp_path: Path) -> None:
    source = save(stirred(vit()), tmp_path / "vit")
    trained = matcher(PixelConfig(backbone=source, size=32))
    stirred(trained)
    trained.save_pretrained(tmp_path / "matcher")
    (tmp_path / "vit" / "config.json").unlink()  # what it started from is no longer needed
    taken = load_backbone(str(tmp_path / "matcher"))
    assert taken.size == 32
    assert same(taken, trained.image_encoder.backbone)


def test_a_frozen_packaged_backbone_of_a_saved_matcher_comes_from_its_package(tmp_path: Path) -> None:
    trained = matcher(PixelConfig(backbone="efficientnet-lite0", size=32, frozen=True))
    trained.save_pretrained(tmp_path)
    assert same(load_backbone(str(tmp_path)), load_backbone("efficientnet-lite0", 32))


def test_a_matcher_of_features_has_no_backbone(tmp_path: Path) -> None:
    matcher(FeatureConfig(feature_dim=4)).save_pretrained(tmp_path)
    with pytest.raises(DiptychError, match="no vision backbone of its own"):
        load_backbone(str(tmp_path))


def test_regions_are_the_cells_with_the_boxes_they_cover() -> None:
    backbone = load_backbone("efficientnet-lite0", 64).eval()
    image = picture(120, 80)
    (found,) = backbone.regions([image])
    with torch.no_grad():
        cells = backbone(backbone.preprocess(image)[None])[0]
    torch.testing.assert_close(torch.from_numpy(found.vectors), cells, atol=1e-4, rtol=1e-4)
    assert found.size == (120, 80)
    assert found.boxes is not None
    assert found.boxes.tolist() == [[0, 0, 60, 40], [60, 0, 120, 40], [0, 40, 60, 80], [60, 40, 120, 80]]


def test_a_backbone_loaded_without_gradients_can_still_be_trained() -> None:
    with torch.inference_mode():
        backbone = load_backbone("efficientnet-lite0", 32)
    backbone.eval()(torch.randn(1, 3, 32, 32)).sum().backward()
    assert all(parameter.grad is not None for parameter in backbone.parameters())


def test_unknown_names_and_broken_assets_are_told(tmp_path: Path) -> None:
    with pytest.raises(DiptychError, match="no-such-model: a Hugging Face model of this name is not in this machine"):
        load_backbone("no-such-model")
    with pytest.raises(DiptychError, match="size: expected at least 1"):
        load_backbone("efficientnet-lite0", 0)
    with pytest.raises(DiptychError, match=r"backbone\.json: no such file"):
        load_backbone("efficientnet-lite0", 32, assets=tmp_path)
    write_json(tmp_path / "image_backbone" / "backbone.json", {"kind": "nothing"})
    with pytest.raises(DiptychError, match="kind 'nothing'"):
        load_backbone("efficientnet-lite0", 32, assets=tmp_path)
