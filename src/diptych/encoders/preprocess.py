"""Pictures to pixels: resizing, normalising, and the random crops and flips of training."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor
from torch.nn import functional as F

Channels = tuple[float, float, float]
_MODES: dict[int, str] = {Image.Resampling.BILINEAR: "bilinear", Image.Resampling.BICUBIC: "bicubic"}


@dataclass(frozen=True)
class Preprocess:
    """How a picture becomes pixels: resized to a square (aspect ignored), scaled, normalised per channel."""

    size: int
    mean: Channels
    std: Channels
    resample: int = Image.Resampling.BICUBIC

    def __call__(self, image: Image.Image) -> Tensor:
        """An RGB picture to (3, size, size) float32."""
        return normalise([self.pixels(image)], self.mean, self.std)[0].contiguous()

    def pixels(self, image: Image.Image) -> np.ndarray:
        """An RGB picture to (size, size, 3) uint8, not yet normalised: a quarter of the bytes to keep and to move."""
        return resize(image, (self.size, self.size), self.resample)


def resize(image: Image.Image, size: tuple[int, int], resample: int) -> np.ndarray:
    """An RGB picture to uint8 (height, width, 3) at the given width and height.

    To a smaller size by torch, which is four times faster than Pillow and differs from it by a level at most.
    """
    mode = _MODES.get(resample)
    if mode is None or size[0] > image.width or size[1] > image.height:
        return np.asarray(image.resize(size, Image.Resampling(resample)))
    values = torch.from_numpy(np.array(image)).unsqueeze(0).permute(0, 3, 1, 2)
    resized = F.interpolate(values, (size[1], size[0]), mode=mode, antialias=True)
    return resized.permute(0, 2, 3, 1)[0].numpy()


def normalise(
    pixels: Sequence[np.ndarray], mean: Channels, std: Channels, device: torch.device | str = "cpu"
) -> Tensor:
    """Equal shapes of uint8 (height, width, 3) to (n, 3, height, width) float32 in channels-last order."""
    return normalise_tensor(torch.from_numpy(np.stack(pixels)).to(device, non_blocking=True), mean, std)


def normalise_tensor(values: Tensor, mean: Channels, std: Channels) -> Tensor:
    """uint8 (n, height, width, 3) to (n, 3, height, width) float32 in channels-last order, on the same device."""
    n, height, width, _ = values.shape
    scale, shift = _statistics(mean, std, width, values.device)
    rows = values.reshape(n, height, width * 3).to(torch.float32).mul_(scale).add_(shift)
    return rows.view(n, height, width, 3).permute(0, 3, 1, 2)


@lru_cache(maxsize=64)
def _statistics(mean: Channels, std: Channels, width: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """The channels' statistics repeated along a whole row, so that the arithmetic runs over long stretches of memory.

    They are kept, since a GPU would be waited for while they are copied to it.
    """
    with torch.inference_mode(False):
        means, stds = torch.tensor(mean, device=device), torch.tensor(std, device=device)
        return 1 / (255 * stds).repeat(width), (-means / stds).repeat(width)


def augment(image: Image.Image, generator: torch.Generator) -> Image.Image:
    """VSE∞'s training view: a crop whose sides are U(0.6, 1) of the picture's, mirrored half the time.

    The caller resizes it to the square afterwards, as it does with a whole picture when testing.
    """
    (x, y, width, height), mirrored = view_box(torch.rand(4, generator=generator).tolist(), image.size)
    view = image.crop((x, y, x + width, y + height))
    return ImageOps.mirror(view) if mirrored else view


def view_box(draws: Sequence[float], size: tuple[int, int]) -> tuple[tuple[int, int, int, int], bool]:
    """Four draws from U(0, 1) to a view of a picture: left, top, width and height of its crop; is it mirrored?"""
    ratio, left, top, mirror = draws
    width, height = (max(1, round((0.6 + 0.4 * ratio) * side)) for side in size)
    return (int(left * (size[0] - width + 1)), int(top * (size[1] - height + 1)), width, height), mirror < 0.5
