"""Vision backbones as sets of cells: pixels in, (n, cells, dim) out."""

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from diptych.common.config import read_json
from diptych.common.errors import DiptychError
from diptych.data.collection import Regions
from diptych.data.feature_file import cell_boxes
from diptych.encoders.preprocess import Preprocess as Preprocess
from diptych.encoders.preprocess import normalise
from diptych.encoders.sources import is_carried, matcher_folder, matcher_tree, matcher_weights

Size = tuple[int, int]  # width, height


class Extractor(nn.Module):
    """A model that turns a picture into local features: a backbone's grid of cells, or a detector's regions.

    dim: length of one local vector
    grid: rows and columns of the cells, None where the regions have boxes of their own
    size: side of the square that a picture is resized to; of a detector, its shortest edge
    """

    dim: int
    grid: tuple[int, int] | None
    size: int

    @abstractmethod
    def prepare(self, image: Image.Image) -> np.ndarray:
        """An RGB picture to uint8 pixels (height, width, 3)."""

    @abstractmethod
    def extract(self, pixels: Sequence[np.ndarray], sizes: Sequence[Size], dtype: torch.dtype) -> list[Regions]:
        """Prepared pictures, whose whole sizes are given, to their local features."""

    def boxes(self, size: Size) -> np.ndarray | None:
        """Which part of a picture of that size each cell of the grid covers: (cells, 4); None without a grid."""
        return None if self.grid is None else cell_boxes(self.grid, size)

    def regions(self, images: Sequence[Image.Image], dtype: torch.dtype = torch.float32) -> list[Regions]:
        """RGB pictures to their local features."""
        with torch.inference_mode():
            return self.extract([self.prepare(i) for i in images], [i.size for i in images], dtype)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device


class Backbone(Extractor):
    """A vision model whose last feature map, or patch tokens, are the cells."""

    grid: tuple[int, int]
    preprocess: Preprocess

    @abstractmethod
    def forward(self, pixels: Tensor) -> Tensor:
        """(n, 3, height, width) -> (n, cells, dim), cells in reading order."""

    @abstractmethod
    def save_assets(self, folder: Path) -> None:
        """Write what `load_backbone(..., assets=folder)` needs to rebuild the architecture without the weights."""

    def prepare(self, image: Image.Image) -> np.ndarray:
        """An RGB picture to (size, size, 3)."""
        return self.preprocess.pixels(image)

    def extract(self, pixels: Sequence[np.ndarray], sizes: Sequence[Size], dtype: torch.dtype) -> list[Regions]:
        """The cells of each picture as its regions, with the stretch of the picture that each one covers."""
        cells = self(normalise(pixels, self.preprocess.mean, self.preprocess.std, self.device))
        vectors = cells.to(dtype).cpu().numpy()
        return [Regions(v, self.boxes(size), size) for v, size in zip(vectors, sizes, strict=True)]


def load_backbone(
    name: str,
    size: int | None = None,
    assets: Path | None = None,
    style: Literal["torchvision", "detector"] = "torchvision",
) -> Backbone:
    """A pretrained backbone; with `assets`, its architecture alone, from a saved matcher's folder.

    name: `efficientnet-lite0` … `efficientnet-lite2`, a Hugging Face name or folder, a file with the weights of a
    ResNet or ResNeXt, or a saved matcher, whose tuned backbone is taken
    size: side of the square that pictures are resized to; the backbone's own where None
    style: whose ResNet a file of weights is: torchvision's, or that of the detector of bottom-up attention
    """
    from diptych.encoders.efficientnet import NAMES, EfficientNetLite
    from diptych.encoders.huggingface_vision import HuggingFaceBackbone
    from diptych.encoders.resnet import ResNet
    from diptych.encoders.resnet_file import is_weights_file, load_resnet_file

    if size is not None and size < 1:
        raise DiptychError(f"size: expected at least 1 pixel, got {size}")
    with torch.inference_mode(False), torch.enable_grad():
        if assets is not None:
            asset = assets / "image_backbone" / "backbone.json"
            kind = read_json(asset).get("kind")
            if kind in NAMES:
                return EfficientNetLite(kind, size, pretrained=False)
            if kind == "huggingface":
                return HuggingFaceBackbone.rebuild(name, asset.parent, size)
            if kind == "resnet":
                return ResNet.rebuild(name, asset.parent, size)
            raise DiptychError(f"kind {kind!r} is not a backbone that is known", where=asset)
        folder = matcher_folder(name)
        if folder is not None:
            return _tuned(folder, size)
        if name in NAMES:
            return EfficientNetLite(name, size)
        if is_weights_file(name):
            return load_resnet_file(Path(name), size, style)
        return HuggingFaceBackbone.load(name, size)


def _tuned(folder: Path, size: int | None) -> Backbone:
    """The vision backbone of a saved matcher, as it was trained there."""
    config = matcher_tree(folder)["image"]
    if config["kind"] == "features":
        raise DiptychError("this matcher has no vision backbone of its own: it was trained on features", where=folder)
    weights = matcher_weights(folder, "image_encoder.backbone.")
    if config["kind"] == "tower":
        return _loaded(_vision_tower(config["name"], folder, size), weights, folder)
    carried = config["backbone"] if is_carried(config["backbone"]) else None
    size = config["size"] if size is None else size
    if carried is not None and not weights:
        return load_backbone(carried, size)
    return _loaded(load_backbone(config["backbone"], size, assets=folder), weights, folder)


def _vision_tower(name: str, folder: Path, size: int | None) -> Backbone:
    from diptych.encoders.towers import VisionTower, load_towers

    tower = VisionTower(*load_towers(name, folder))
    if size not in (None, tower.size):
        raise DiptychError(f"size: the pictures of {folder} are {tower.size} pixels wide, got {size}")
    return tower


def _loaded(backbone: Backbone, weights: dict[str, Tensor], folder: Path) -> Backbone:
    try:
        backbone.load_state_dict(weights)
    except RuntimeError as error:
        raise DiptychError(f"the weights do not fit its vision backbone: {error}", where=folder) from None
    return backbone
