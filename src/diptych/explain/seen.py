"""One picture as a matcher sees it: what its encoder is given, and where on the picture each region is."""

from copy import copy
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from torch import nn

from diptych.common.errors import DiptychError
from diptych.data.batches import ImageBatch, Pixels, pad_regions
from diptych.data.collection import Regions
from diptych.data.feature_file import cell_boxes
from diptych.encoders.encoded import Encoded
from diptych.encoders.images import FeatureEncoder
from diptych.matchers.base import Matcher, Picture, open_picture

M = TypeVar("M", bound=Matcher)


@dataclass(frozen=True)
class Seen:
    """A batch of one picture, and the places of its regions.

    boxes: (regions, 4), x0 y0 x1 y1 on a picture of that `size`; None where they are not known
    grid: rows and columns, where the first regions are cells in reading order
    """

    batch: ImageBatch
    boxes: np.ndarray | None
    size: tuple[int, int] | None
    grid: tuple[int, int] | None


def see(matcher: Matcher, image: Picture | Regions) -> Seen:
    """A picture for a matcher, or local features at hand.

    A picture given to a matcher of features goes through the backbone or detector that its config names.
    """
    encoder = matcher.image_encoder
    if isinstance(image, Regions):
        if not isinstance(encoder, FeatureEncoder):
            raise DiptychError("explain: this matcher takes pictures, and was given local features")
        if not len(image.vectors):
            raise DiptychError("explain: the picture's local features are empty; expected at least one region")
        return _from_regions(matcher, image)
    picture = open_picture(image)
    if isinstance(encoder, FeatureEncoder):
        return _from_regions(matcher, matcher.extractor().regions([picture])[0])
    backbone = encoder.backbone
    pixels = torch.from_numpy(backbone.preprocess.pixels(picture)[None].copy())  # a picture's own memory is read-only
    batch = Pixels(pixels).to(matcher.device)
    return Seen(batch, cell_boxes(backbone.grid, picture.size), picture.size, (backbone.grid[0], backbone.grid[1]))


def _from_regions(matcher: Matcher, regions: Regions) -> Seen:
    batch = pad_regions([regions]).to(matcher.device)
    boxes = None if regions.boxes is None else np.asarray(regions.boxes, dtype=np.float32)
    size = regions.size
    if boxes is not None and size is None:
        # Nothing says how large the picture is; the boxes reach as far as is known.
        size = (max(1, int(np.ceil(boxes[:, 2].max()))), max(1, int(np.ceil(boxes[:, 3].max()))))
    grid = None if boxes is None or size is None else find_grid(boxes, size)
    return Seen(batch, boxes, size, grid)


def find_grid(boxes: np.ndarray, size: tuple[int, int]) -> tuple[int, int] | None:
    """Rows and columns, where the boxes (or all but the last few) are a grid's cells in reading order, to a pixel."""
    if len(boxes) < 4 or abs(boxes[0, 0]) > 1 or abs(boxes[0, 1]) > 1:
        return None
    width, height = boxes[0, 2] - boxes[0, 0], boxes[0, 3] - boxes[0, 1]
    if min(width, height) <= 0:
        return None
    grid = round(size[1] / float(height)), round(size[0] / float(width))
    cells = grid[0] * grid[1]
    if cells < 4 or cells > len(boxes) or not np.allclose(boxes[:cells], cell_boxes(grid, size), atol=1.0, rtol=0):
        return None
    return grid


class _AtHand(nn.Module):
    """Gives what was encoded already."""

    def __init__(self, encoded: Encoded) -> None:
        super().__init__()
        self.encoded = encoded

    def forward(self, batch: ImageBatch) -> Encoded:
        return self.encoded


def with_encoded(matcher: M, encoded: Encoded) -> M:
    """The same matcher, sharing all weights, whose image encoder gives these local vectors whatever it is shown.

    The backbone then runs once a picture, and regions can be left out whatever the encoder is.
    """
    twin = copy(matcher)
    twin._modules = {**matcher._modules, "image_encoder": _AtHand(encoded)}
    return twin
