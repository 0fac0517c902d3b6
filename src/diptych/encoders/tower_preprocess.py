"""How CLIP, SigLIP and their kin prepare a picture, without their own image processors."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from diptych.encoders.backbones import Size
from diptych.encoders.huggingface_vision import read_statistics
from diptych.encoders.preprocess import Channels, Preprocess, resize


@dataclass(frozen=True)
class TowerPreprocess(Preprocess):
    """As the model's own image processor does.

    edges: (height, width) that a picture is stretched to, or its shortest edge, the aspect kept
    crop: (height, width) cut from the middle, or None
    """

    edges: tuple[int, int] | int = 224
    crop: tuple[int, int] | None = None

    @classmethod
    def read(cls, settings: Mapping[str, Any], side: int, statistics: tuple[Channels, Channels]) -> "TowerPreprocess":
        """From an image processor's settings; without any, a stretch to the model's own square."""
        resample = int(settings.get("resample", Image.Resampling.BICUBIC))
        edges = _edges(settings.get("size"), side) if settings.get("do_resize", True) else (side, side)
        crop = None
        if settings and settings.get("do_center_crop", "crop_size" in settings):
            cut = _edges(settings.get("crop_size"), side)
            crop = (cut, cut) if isinstance(cut, int) else cut
        mean, std = read_statistics(settings, statistics)
        square = (side, side) if isinstance(edges, int) and crop is None else edges
        longest = square if isinstance(square, int) else max(square)
        return cls(longest, mean, std, resample, square, crop)

    @property
    def seen(self) -> tuple[int, int]:
        """Height and width that the model sees."""
        if self.crop is not None:
            return self.crop
        return (self.edges, self.edges) if isinstance(self.edges, int) else self.edges

    def pixels(self, image: Image.Image) -> np.ndarray:
        """An RGB picture to (height, width, 3) uint8."""
        width, height = self._resized(image.size)
        pixels = resize(image, (width, height), self.resample)
        return pixels if self.crop is None else _centre(pixels, *self.crop)

    def frame(self, size: Size) -> tuple[float, float, float, float]:
        """The part of a picture (width, height) that is seen: x0, y0, x1, y1; beyond it where there is padding."""
        if self.crop is None:
            return 0.0, 0.0, float(size[0]), float(size[1])
        (width, height), (high, wide) = self._resized(size), self.crop
        left, top = _offset(width, wide), _offset(height, high)
        across, down = size[0] / width, size[1] / height
        return left * across, top * down, (left + wide) * across, (top + high) * down

    def _resized(self, size: Size) -> Size:
        """Width and height before the middle is cut out."""
        if not isinstance(self.edges, int):
            return self.edges[1], self.edges[0]
        short, long = min(size), max(size)
        edges = self.edges, int(self.edges * long / short)
        return edges if size[0] <= size[1] else (edges[1], edges[0])


def _offset(length: int, wanted: int) -> int:
    """Where the middle begins; below 0 where there is too little, and the rest is black."""
    return (length - wanted) // 2 if length >= wanted else -((wanted - length + 1) // 2)


def _centre(pixels: np.ndarray, height: int, width: int) -> np.ndarray:
    """The middle of a picture; black around it where it is too small."""
    missing = max(0, height - pixels.shape[0]), max(0, width - pixels.shape[1])
    if any(missing):
        before = [(m + 1) // 2 for m in missing]
        pixels = np.pad(pixels, [*((b, m - b) for b, m in zip(before, missing, strict=True)), (0, 0)])
    top, left = (pixels.shape[0] - height) // 2, (pixels.shape[1] - width) // 2
    return pixels[top : top + height, left : left + width]


def _edges(value: Any, side: int) -> tuple[int, int] | int:
    if isinstance(value, Mapping):
        if "height" in value and "width" in value:
            return int(value["height"]), int(value["width"])
        value = value.get("shortest_edge")
    return int(value) if isinstance(value, int) else side
