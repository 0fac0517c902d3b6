from pathlib import Path

import pytest
import torch
from efficientnet_lite_pytorch import EfficientNet

from diptych.common.errors import DiptychError
from diptych.encoders.backbones import load_backbone
from diptych.encoders.efficientnet import EfficientNetLite, _read_weights
from tests.encoders.pictures import picture


@pytest.mark.parametrize(("name", "size"), [("efficientnet-lite0", 70), ("efficientnet-lite2", 64)])
def test_cells_are_the_packages_last_feature_map_in_reading_order(name: str, size: int) -> None:
    ours = load_backbone(name, size).eval().to(memory_format=torch.channels_last)
    theirs = EfficientNet.from_name(name, image_size=size).eval()
    theirs.load_state_dict(_read_weights(name), strict=False)
    pixels = torch.randn(2, 3, size, size)
    with torch.no_grad():
        cells = ours(pixels)
        features = theirs.extract_features(pixels)
    rows, columns = ours.grid
    assert cells.shape == (2, rows * columns, ours.dim) == (2, features.shape[2] * features.shape[3], 1280)
    for row in range(rows):
        for column in range(columns):
            torch.testing.assert_close(
                cells[:, row * columns + column], features[:, :, row, column], atol=1e-4, rtol=1e-4
            )


def test_every_parameter_gets_a_gradient() -> None:
    backbone = load_backbone("efficientnet-lite0", 64).eval()
    backbone(torch.randn(1, 3, 64, 64)).square().sum().backward()
    assert [n for n, p in backbone.named_parameters() if p.grad is None] == []


@pytest.mark.parametrize(("name", "size"), [("efficientnet-lite0", 224), ("efficientnet-lite1", 240)])
def test_its_own_size_and_normalisation(name: str, size: int) -> None:
    backbone = load_backbone(name)
    assert backbone.preprocess.size == backbone.size == size
    black, white = (backbone.preprocess(p) for p in (picture().point(lambda _: 0), picture().point(lambda _: 255)))
    torch.testing.assert_close(black, torch.full_like(black, -127 / 128))
    torch.testing.assert_close(white, torch.ones_like(white))


def test_the_architecture_is_rebuilt_from_its_assets_without_weights(tmp_path: Path) -> None:
    first = load_backbone("efficientnet-lite0", 64)
    first.save_assets(tmp_path)
    again = load_backbone("a name that no longer exists", 64, assets=tmp_path)
    assert isinstance(again, EfficientNetLite)
    assert not torch.equal(again.model._conv_head.weight, first.model._conv_head.weight)
    again.load_state_dict(first.state_dict())
    pixels = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        assert torch.equal(first.eval()(pixels), again.eval()(pixels))


def test_another_size_than_it_was_built_for_is_refused() -> None:
    with pytest.raises(DiptychError, match="built for 64x64 pixels, and was given 32x64"):
        load_backbone("efficientnet-lite0", 64)(torch.zeros(1, 3, 32, 64))
