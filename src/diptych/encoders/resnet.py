"""ResNet and ResNeXt with bottleneck blocks: the networks that published grid models carry with them."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from torch import Tensor, nn

from diptych.common.config import read_json
from diptych.common.errors import DiptychError
from diptych.common.files import write_json
from diptych.encoders.backbones import Backbone
from diptych.encoders.preprocess import Channels, Preprocess

ResNetStyle = Literal["torchvision", "detector"]


@dataclass(frozen=True)
class ResNetLayout:
    """The shape of a network; each stage has twice the channels of the one before.

    depths: blocks of each stage; stem: channels after the first convolution
    inner: channels inside the blocks of each stage; dim: channels that leave the last stage
    groups: of the 3 x 3 convolutions, 32 in ResNeXt
    style: `torchvision`: a block's 3 x 3 convolution strides, max-pooling pads; `detector`, as in bottom-up attention:
        its first 1 x 1 convolution strides, max-pooling does not pad and rounds up
    """

    depths: tuple[int, ...]
    stem: int
    inner: tuple[int, ...]
    dim: int
    groups: int = 1
    style: ResNetStyle = "torchvision"


class Bottleneck(nn.Module):
    """1 x 1, 3 x 3, 1 x 1, and a shortcut."""

    def __init__(self, layout: ResNetLayout, inputs: int, inner: int, outputs: int, stride: int) -> None:
        super().__init__()
        first, second = (stride, 1) if layout.style == "detector" else (1, stride)
        self.conv1 = nn.Conv2d(inputs, inner, 1, first, bias=False)
        self.bn1 = nn.BatchNorm2d(inner)
        self.conv2 = nn.Conv2d(inner, inner, 3, second, padding=1, groups=layout.groups, bias=False)
        self.bn2 = nn.BatchNorm2d(inner)
        self.conv3 = nn.Conv2d(inner, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.downsample: nn.Sequential | None = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """(n, inputs, h, w) -> (n, outputs, h / stride, w / stride)."""
        out = self.bn1(self.conv1(x)).relu()
        out = self.bn2(self.conv2(out)).relu()
        out = self.bn3(self.conv3(out))
        shortcut = x if self.downsample is None else self.downsample(x)
        return (out + shortcut).relu()


class ResNet(Backbone):
    """The last stage's cells; tensors have torchvision's names."""

    def __init__(self, name: str, layout: ResNetLayout, preprocess: Preprocess) -> None:
        super().__init__()
        self.name, self.layout, self.preprocess = name, layout, preprocess
        self.dim, self.size = layout.dim, preprocess.size
        self.conv1 = nn.Conv2d(3, layout.stem, 7, 2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(layout.stem)
        detector = layout.style == "detector"
        self.pool = nn.MaxPool2d(3, 2, padding=0 if detector else 1, ceil_mode=detector)
        channels, stages = layout.stem, len(layout.depths)
        for s, (depth, inner) in enumerate(zip(layout.depths, layout.inner, strict=True)):
            outputs = layout.dim >> (stages - 1 - s)
            blocks = [
                Bottleneck(layout, outputs if b else channels, inner, outputs, 2 if s and not b else 1)
                for b in range(depth)
            ]
            self.add_module(f"layer{s + 1}", nn.Sequential(*blocks))
            channels = outputs
        side = (self.size + 1) // 2
        side = -(-(side - 3) // 2) + 1 if detector else (side + 1) // 2
        for _ in range(stages - 1):
            side = (side + 1) // 2
        self.grid = (side, side)

    @classmethod
    def rebuild(cls, name: str, folder: Path, size: int | None = None) -> "ResNet":
        """The architecture alone, from what `save_assets` wrote."""
        saved = read_json(folder / "backbone.json")
        tree = saved["layout"]
        layout = ResNetLayout(**{**tree, "depths": tuple(tree["depths"]), "inner": tuple(tree["inner"])})
        preprocess = Preprocess(
            saved["size"] if size is None else size, tuple(saved["mean"]), tuple(saved["std"]), saved["resample"]
        )
        return cls(name, layout, preprocess).eval()

    def forward(self, pixels: Tensor) -> Tensor:
        """(n, 3, size, size) -> (n, cells, dim)."""
        if pixels.shape[-2:] != (self.size, self.size):
            given = "x".join(map(str, pixels.shape[-2:]))
            raise DiptychError(f"built for {self.size}x{self.size} pixels, and was given {given}", where=self.name)
        x: Tensor = self.pool(self.bn1(self.conv1(pixels)).relu())
        for s in range(len(self.layout.depths)):
            x = self.get_submodule(f"layer{s + 1}")(x)
        return x.flatten(2).transpose(1, 2)

    def save_assets(self, folder: Path) -> None:
        """The layout, and how pictures are prepared."""
        p = self.preprocess
        write_json(
            folder / "image_backbone" / "backbone.json", resnet_asset(self.layout, p.size, p.mean, p.std, p.resample)
        )


def resnet_asset(layout: ResNetLayout, size: int, mean: Channels, std: Channels, resample: int) -> dict[str, Any]:
    """What `rebuild` reads."""
    return {
        "kind": "resnet",
        "layout": asdict(layout),
        "size": size,
        "mean": list(mean),
        "std": list(std),
        "resample": int(resample),
    }
