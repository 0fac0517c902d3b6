"""Vision backbones as sets of cells: pixels in, (n, cells, dim) out."""

from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn


@dataclass(frozen=True)
class Preprocess:
    """How a picture becomes pixels: resized to a square (aspect ignored), scaled, normalised per channel."""

    size: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]


class Backbone(nn.Module):
    """A vision model whose last feature map, or patch tokens, are the cells."""

    dim: int
    grid: tuple[int, int]
    preprocess: Preprocess

    @abstractmethod
    def forward(self, pixels: Tensor) -> Tensor:
        """(n, 3, height, width) -> (n, cells, dim), cells in reading order."""

    @abstractmethod
    def save_assets(self, folder: Path) -> None:
        """Write what `load_backbone(..., assets=folder)` needs to rebuild the architecture without the weights."""


def load_backbone(name: str, size: int, assets: Path | None = None) -> Backbone:
    """A pretrained backbone by name or folder; with `assets`, its architecture alone, from a saved matcher's folder."""
    raise ValueError(name)
