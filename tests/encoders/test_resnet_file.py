"""A network from a file of weights with torchvision's names, such as WSL's ResNeXt: its shapes say what it is."""

from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor

from diptych.common.errors import DiptychError
from diptych.data.tokens import WordTokenizer
from diptych.data.vocabulary import Vocabulary
from diptych.encoders.backbones import load_backbone
from diptych.encoders.images import PixelConfig
from diptych.encoders.preprocess import Preprocess
from diptych.encoders.resnet import ResNet, ResNetLayout
from diptych.encoders.resnet_file import resnet_layout
from diptych.encoders.texts import GRUConfig
from diptych.matchers.base import Matcher
from diptych.matchers.catalog import build_matcher
from diptych.matchers.vse import VSEConfig

# As the published ones: ResNeXt-101 32x8d has inner (256, 512, 1024, 2048), dim 2048 and 32 groups.
RESNEXT = ResNetLayout((1, 2, 2, 1), 4, (4, 8, 16, 32), 32, groups=2)
RESNET = ResNetLayout((2, 1, 1, 1), 4, (2, 4, 8, 16), 64)
PIXELS = Preprocess(64, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225), Image.Resampling.BILINEAR)


def network(layout: ResNetLayout) -> ResNet:
    torch.manual_seed(3)
    made = ResNet("made", layout, PIXELS).eval()
    for name, tensor in made.state_dict().items():
        if name.endswith("running_var"):
            tensor.uniform_(0.5, 2.0)
        elif name.endswith("running_mean"):
            tensor.normal_()
    return made


def published(layout: ResNetLayout) -> dict[str, Tensor]:
    """With the classifier that such files have."""
    return {**network(layout).state_dict(), "fc.weight": torch.zeros(10, layout.dim), "fc.bias": torch.zeros(10)}


@pytest.mark.parametrize("layout", [RESNEXT, RESNET], ids=["resnext", "resnet"])
@pytest.mark.parametrize("way", ["plain", "state_dict", "old", "module", "safetensors"])
def test_its_shapes_say_what_it_is(layout: ResNetLayout, way: str, tmp_path: Path) -> None:
    weights = published(layout)
    path = tmp_path / ("net.safetensors" if way == "safetensors" else "net.pth")
    if way == "safetensors":
        save_file(weights, path)
    elif way == "state_dict":
        torch.save({"state_dict": weights, "epoch": 3}, path)
    elif way == "module":
        torch.save({f"module.{name}": tensor for name, tensor in weights.items()}, path)
    else:
        torch.save(weights, path, _use_new_zipfile_serialization=way != "old")
    loaded = load_backbone(str(path), 64)
    assert isinstance(loaded, ResNet)
    assert loaded.layout == layout
    pixels = torch.randn(2, 3, 64, 64)
    torch.testing.assert_close(loaded(pixels), network(layout)(pixels), atol=0, rtol=0)
    assert loaded.preprocess == PIXELS


@pytest.mark.parametrize(
    ("layout", "parameters"),
    [
        # torchvision's counts, less the 2,049,000 of a classifier of a thousand classes.
        (ResNetLayout((3, 4, 23, 3), 64, (256, 512, 1024, 2048), 2048, groups=32), 88_791_336 - 2_049_000),
        (ResNetLayout((3, 8, 36, 3), 64, (64, 128, 256, 512), 2048), 60_192_808 - 2_049_000),
    ],
    ids=["resnext-101-32x8d", "resnet-152"],
)
def test_the_published_ones_have_their_sizes(layout: ResNetLayout, parameters: int) -> None:
    with torch.device("meta"):
        made = ResNet("made", layout, PIXELS)
    assert sum(p.numel() for p in made.parameters()) == parameters
    assert resnet_layout(made.state_dict(), "torchvision") == layout


def test_the_detectors_network_strides_first_and_sees_its_colours(tmp_path: Path) -> None:
    torch.save(published(RESNET), tmp_path / "butd.pth")
    loaded = load_backbone(str(tmp_path / "butd.pth"), 64, style="detector")
    assert isinstance(loaded, ResNet)
    assert loaded.layout.style == "detector"
    # Blue, green, red in 0 … 255 less their means, given to the weights as they are in the file.
    theirs = ResNet("theirs", loaded.layout, PIXELS).eval()
    theirs.load_state_dict(network(RESNET).state_dict())
    picture = torch.randint(0, 256, (1, 3, 64, 64)).float()
    bgr = picture.flip(1) - torch.tensor([102.9801, 115.9465, 122.7717]).view(1, 3, 1, 1)
    mean, std = (torch.tensor(x).view(1, 3, 1, 1) for x in (loaded.preprocess.mean, loaded.preprocess.std))
    torch.testing.assert_close(loaded((picture / 255 - mean) / std), theirs(bgr), atol=1e-3, rtol=1e-4)


def test_a_matcher_over_it_is_saved_and_needs_the_file_no_more(tmp_path: Path) -> None:
    torch.save(published(RESNEXT), tmp_path / "net.pth")
    config = VSEConfig(
        dim=8, image=PixelConfig(backbone=str(tmp_path / "net.pth"), size=64), text=GRUConfig(word_dim=4)
    )
    matcher = build_matcher(config, WordTokenizer(Vocabulary.build(["a dog"], at_least=1))).eval()
    matcher.save_pretrained(tmp_path / "saved")
    (tmp_path / "net.pth").unlink()
    again = Matcher.from_pretrained(tmp_path / "saved")
    pixels = torch.randn(1, 3, 64, 64)
    torch.testing.assert_close(again.image_encoder.backbone(pixels), matcher.image_encoder.backbone(pixels))


def test_what_is_no_such_network_is_said_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(DiptychError, match=r"net\.pth: no such file; expected the weights of a ResNet or ResNeXt"):
        load_backbone(str(tmp_path / "net.pth"))
    torch.save({"conv1.weight": torch.zeros(4, 3, 7, 7)}, tmp_path / "net.pth")
    with pytest.raises(DiptychError, match=r"net\.pth: 'layer1\.0\.conv2\.weight' is missing"):
        load_backbone(str(tmp_path / "net.pth"))
    weights = published(RESNET)
    del weights["layer2.0.bn1.weight"]
    torch.save(weights, tmp_path / "net.pth")
    with pytest.raises(DiptychError, match=r"net\.pth: 'layer2\.0\.bn1\.weight' is missing"):
        load_backbone(str(tmp_path / "net.pth"))
    torch.save({**published(RESNET), "layer1.0.se.weight": torch.zeros(2)}, tmp_path / "net.pth")
    with pytest.raises(DiptychError, match=r"net\.pth: 'layer1\.0\.se\.weight' is left over"):
        load_backbone(str(tmp_path / "net.pth"))
    (tmp_path / "net.pth").write_bytes(b"weights")
    with pytest.raises(DiptychError, match=r"net\.pth: not a file of weights that can be read safely"):
        load_backbone(str(tmp_path / "net.pth"))
    torch.save({"conv1.weight": [1, 2]}, tmp_path / "net.pth")
    with pytest.raises(DiptychError, match=r"net\.pth: expected tensors by name"):
        load_backbone(str(tmp_path / "net.pth"))
