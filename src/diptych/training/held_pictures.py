"""Pictures that are decoded once and stay on the training device, where every step cuts its views of them.

A view is a crop, enlarged to the backbone's square. Resizing along one side is a matrix product, so the views of a
whole batch are two batched products, with Pillow's own weights.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from diptych.common.errors import DiptychError
from diptych.common.progress import progress_bar
from diptych.data.batches import Pixels
from diptych.data.collection import Collection, Item
from diptych.data.open_picture import open_picture
from diptych.encoders.preprocess import Preprocess, view_box

CHUNK = 32  # pictures that a worker decodes before it hands them over


@dataclass(frozen=True)
class Views:
    """What a step sees of held pictures.

    pictures: (n,), their positions; boxes: (n, 4), left, top, width and height; mirrored: (n,)
    """

    pictures: Tensor
    boxes: Tensor
    mirrored: Tensor

    def __len__(self) -> int:
        return len(self.pictures)

    def to(self, device: torch.device | str) -> "Views":
        """The same on another device."""
        return Views(*(t.to(device, non_blocking=True) for t in (self.pictures, self.boxes, self.mirrored)))

    def pin_memory(self) -> "Views":
        """The same in memory from which a GPU copies while other work goes on."""
        return Views(self.pictures.pin_memory(), self.boxes.pin_memory(), self.mirrored.pin_memory())


def draw_views(pictures: Sequence[int], side: int, generator: torch.Generator | None) -> Views:
    """A view of each picture, the squares having `side`: drawn as `augment` does, or whole without a generator."""
    if generator is None:
        boxes, mirrored = [(0, 0, side, side)] * len(pictures), [False] * len(pictures)
    else:
        draws = torch.rand(len(pictures), 4, generator=generator).tolist()
        drawn = [view_box(four, (side, side)) for four in draws]
        boxes, mirrored = [box for box, _ in drawn], [mirror for _, mirror in drawn]
    return Views(torch.tensor(pictures), torch.tensor(boxes), torch.tensor(mirrored))


class HeldPictures:
    """Squares of pixels (n, side, side, 3) uint8 on a device."""

    def __init__(self, pixels: Tensor, size: int, resample: int) -> None:
        if resample not in _FILTERS:
            raise DiptychError(
                "training.hold_pictures: this backbone's pictures are resized neither bilinearly nor bicubically"
            )
        self.pixels, self.size, self.resample = pixels, size, resample

    @classmethod
    def decode(
        cls, collection: Collection, preprocess: Preprocess, side: int, device: torch.device, workers: int
    ) -> "HeldPictures":
        """All pictures of a collection, decoded by so many worker processes."""
        squares = replace(preprocess, size=side)
        return cls(decode_pixels(collection, squares, device, workers), preprocess.size, preprocess.resample)

    def cut(self, views: Views) -> Pixels:
        """The views, resized to the backbone's square: (n, size, size, 3) uint8. `views` are on the same device."""
        n, side, size = len(views), self.pixels.shape[1], self.size
        left, top, width, height = views.boxes.unbind(1)
        across = resizing(left, width, side, size, self.resample)
        across = torch.where(views.mirrored[:, None, None], across.flip(1), across)
        down = resizing(top, height, side, size, self.resample)
        x = self.pixels[views.pictures].to(torch.float32).transpose(1, 2).reshape(n, side, side * 3)
        x = _levels(torch.bmm(across, x)).view(n, size, side, 3).transpose(1, 2).reshape(n, side, size * 3)
        x = _levels(torch.bmm(down, x)).view(n, size, size, 3)
        return Pixels(x.to(torch.uint8))


def _levels(x: Tensor) -> Tensor:
    """Whole levels, as Pillow has them after each of the two sides."""
    return x.add_(0.5).floor_().clamp_(0, 255)


def _bicubic(x: Tensor) -> Tensor:
    x = x.abs()
    near = (1.5 * x - 2.5) * x * x + 1
    far = -0.5 * (((x - 5) * x + 8) * x - 4)
    return torch.where(x < 1, near, torch.where(x < 2, far, 0.0))


def _bilinear(x: Tensor) -> Tensor:
    return (1 - x.abs()).clamp(min=0)


_FILTERS = {int(Image.Resampling.BICUBIC): _bicubic, int(Image.Resampling.BILINEAR): _bilinear}


def resizing(start: Tensor, length: Tensor, side: int, size: int, resample: int) -> Tensor:
    """Pillow's weights of the `side` pixels of a line in the `size` pixels that its stretch is resized to.

    start, length: (n,), the stretch; -> (n, size, side), each row summing to 1, pixels outside the stretch weighing 0
    """
    device = start.device
    scale = (length.to(torch.float32) / size)[:, None, None]
    centres = start[:, None, None] + (torch.arange(size, device=device)[None, :, None] + 0.5) * scale
    places = torch.arange(side, device=device)[None, None, :]
    weights = _FILTERS[resample]((places + 0.5 - centres) / scale.clamp(min=1))
    inside = (places >= start[:, None, None]) & (places < (start + length)[:, None, None])
    weights = weights * inside
    return weights / weights.sum(-1, keepdim=True)


def decode_pixels(collection: Collection, preprocess: Preprocess, device: torch.device, workers: int) -> Tensor:
    """Every picture of a collection, on the device: (n, size, size, 3) uint8."""
    n, side = len(collection), preprocess.size
    try:
        pixels = torch.empty(n, side, side, 3, dtype=torch.uint8, device=device)
    except RuntimeError:
        needed = n * side * side * 3 / 2**30
        raise DiptychError(
            f"training.hold_pictures: {n:,} pictures of {side}x{side} take {needed:.1f} GiB, more than {device} has"
        ) from None
    loader: Any = DataLoader(
        _Decoding(collection.items, preprocess),
        batch_size=None,
        num_workers=workers,
        prefetch_factor=2 if workers else None,
    )
    with progress_bar("pictures") as bar:
        task = bar.add_task("decoding pictures", total=n, note="")
        for chunk, decoded in enumerate(loader):
            if isinstance(decoded, str):
                raise DiptychError(decoded)
            pixels[chunk * CHUNK : chunk * CHUNK + len(decoded)].copy_(decoded)
            bar.advance(task, len(decoded))
    return pixels


class _Decoding(Dataset[Tensor | str]):
    """Chunks of decoded pictures; what is wrong with one comes as a sentence, which passes between processes whole."""

    def __init__(self, items: Sequence[Item], preprocess: Preprocess) -> None:
        self.items, self.preprocess = items, preprocess

    def __len__(self) -> int:
        return -(-len(self.items) // CHUNK)

    def __getitem__(self, chunk: int) -> Tensor | str:
        try:
            few = self.items[chunk * CHUNK : (chunk + 1) * CHUNK]
            return torch.from_numpy(np.stack([self._pixels(item) for item in few]))
        except DiptychError as error:
            return str(error)

    def _pixels(self, item: Item) -> np.ndarray:
        if item.open is None:
            raise DiptychError(f"{item.id}: the data has no picture, and the matcher needs pixels")
        picture = open_picture(item.open)
        if picture.size == (self.preprocess.size,) * 2:
            return np.asarray(picture)  # resizing would change nothing
        return self.preprocess.pixels(picture)
