"""The network is rebuilt from its assets; its numbers are checked where published grids are converted."""

from pathlib import Path

import pytest
import torch

from diptych.common.errors import DiptychError
from diptych.encoders.backbones import load_backbone
from diptych.encoders.preprocess import Preprocess
from diptych.encoders.resnet import ResNet, ResNetLayout

TINY = ResNetLayout((1, 2), 4, (4, 8), 16, groups=2)
DETECTOR = ResNetLayout((1, 1, 1), 4, (2, 4, 8), 32, style="detector")
PIXELS = Preprocess(40, (0.5, 0.4, 0.3), (0.2, 0.2, 0.3))


@pytest.mark.parametrize("layout", [TINY, DETECTOR])
def test_it_is_rebuilt_from_its_assets(layout: ResNetLayout, tmp_path: Path) -> None:
    network = ResNet("tiny", layout, PIXELS).eval()
    network.save_assets(tmp_path)
    again = load_backbone("tiny", assets=tmp_path)
    assert isinstance(again, ResNet)
    again.load_state_dict(network.state_dict())
    assert (again.layout, again.preprocess) == (layout, PIXELS)
    pixels = torch.randn(2, 3, 40, 40)
    torch.testing.assert_close(again(pixels), network(pixels), atol=0, rtol=0)


@pytest.mark.parametrize("layout", [TINY, DETECTOR])
@pytest.mark.parametrize("size", [33, 40, 41, 62, 63, 64, 65])
def test_the_grid_is_what_comes_out(layout: ResNetLayout, size: int) -> None:
    network = ResNet("tiny", layout, Preprocess(size, PIXELS.mean, PIXELS.std)).eval()
    cells = network(torch.zeros(1, 3, size, size))
    assert cells.shape == (1, network.grid[0] * network.grid[1], layout.dim)


def test_another_size_is_refused() -> None:
    with pytest.raises(DiptychError, match="built for 40x40 pixels, and was given 32x32"):
        ResNet("tiny", TINY, PIXELS)(torch.zeros(1, 3, 32, 32))


def test_torchvision_names() -> None:
    names = ResNet("tiny", TINY, PIXELS).state_dict().keys()
    assert {"conv1.weight", "bn1.running_var", "layer1.0.conv2.weight", "layer2.1.bn3.bias"} <= names
    assert {"layer1.0.downsample.0.weight", "layer2.0.downsample.1.weight"} <= names
