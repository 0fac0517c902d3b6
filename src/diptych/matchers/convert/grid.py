"""The grid encoder of VSE∞: a ResNet (a detector's, ImageNet's) or a ResNeXt, one Linear on its cells, GPO."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from PIL import Image
from torch import Tensor

from diptych.common.errors import DiptychError
from diptych.encoders.huggingface_vision import IMAGENET
from diptych.encoders.images import PixelConfig
from diptych.encoders.resnet import ResNetLayout, resnet_asset
from diptych.encoders.resnet_file import DETECTOR
from diptych.matchers.convert.checkpoint import Checkpoint, shown
from diptych.matchers.convert.settings import Settings
from diptych.matchers.convert.sides import linear_shape

STAGES = {"base.4.": "layer1.", "base.5.": "layer2.", "base.6.": "layer3.", "top.0.": "layer4."}
STEM = {"base.0.": "conv1.", "base.1.": "bn1."}
OURS = "image_encoder.backbone."


@dataclass(frozen=True)
class GridSide:
    """An image encoder over pixels that was recognised."""

    dim: int
    config: PixelConfig
    names: Mapping[str, str]
    copies: Mapping[str, str]
    unused: Mapping[str, str]
    edits: Mapping[str, Callable[[Tensor], Tensor]]
    assets: Mapping[str, Any]
    notes: tuple[str, ...]


def grid_side(checkpoint: Checkpoint, settings: Settings) -> GridSide:
    """Whose pictures are the square of 256 times `input_scale_factor` pixels (512 as published)."""
    dim, _ = linear_shape(checkpoint, "image.image_encoder.fc.weight")
    layout = _layout(checkpoint)
    source = str(settings.get("backbone_source", "wsl" if layout.groups > 1 else "detector"))
    detector = "detector" in source
    size = int(256 * settings.number("input_scale_factor", 2.0))
    mean, std = DETECTOR if detector else IMAGENET
    asset = resnet_asset(layout, size, mean, std, Image.Resampling.BILINEAR)
    names = {
        "image.image_encoder.fc.": "image_encoder.fc.",
        "image.image_encoder.gpool.": "image_gpo.",
        **{f"image.backbone.{theirs}": OURS + ours for theirs, ours in {**STEM, **STAGES}.items()},
    }
    return GridSide(
        dim=dim,
        config=PixelConfig(backbone=f"resnet-{source}", size=size),
        names=names,
        copies={"image.backbone.resnet.": OURS},
        unused={"image.backbone.resnet.fc.": "the classifier over the cells' mean is never used"},
        edits={f"{OURS}conv1.weight": _flip} if detector else {},
        assets={"image_backbone/backbone.json": asset},
        notes=(
            f"Pictures are resized to {size} x {size} pixels by Pillow's bilinear filter, where the authors' code uses "
            "OpenCV's: the same pixels give the same scores, the same file nearly so.",
        ),
    )


def _flip(weight: Tensor) -> Tensor:
    """A convolution over blue, green, red as one over red, green, blue."""
    return weight.flip(1)


def _layout(checkpoint: Checkpoint) -> ResNetLayout:
    """Depths, widths and groups from the shapes.

    ResNeXts are torchvision's. All ResNets of the authors' code have the detector's layout, whatever their weights.
    """
    root = "image.backbone."
    if not checkpoint.starting(f"{root}base."):
        name = checkpoint.starting(root)[0]
        raise DiptychError(
            f"{shown(name)} is of a network that is not known; expected a ResNet's 'backbone.base.…'",
            where=checkpoint.path,
        )
    depths, inner = [], []
    groups = 1
    for stage in STAGES:
        depths.append(checkpoint.count(root + stage, "."))
        planes, per_group, *_ = checkpoint.shape(f"{root}{stage}0.conv2.weight", 4)
        inner.append(planes)
        groups = max(1, planes // max(1, per_group))
    dim, *_ = checkpoint.shape(f"{root}top.0.0.conv3.weight", 4)
    stem, *_ = checkpoint.shape(f"{root}base.0.weight", 4)
    if not all(depths) or dim % 2 ** (len(STAGES) - 1):
        raise DiptychError("backbone: not a ResNet of four stages that double their channels", where=checkpoint.path)
    return ResNetLayout(
        tuple(depths), stem, tuple(inner), dim, groups, style="torchvision" if groups > 1 else "detector"
    )
