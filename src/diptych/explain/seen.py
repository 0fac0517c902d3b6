"""One picture as a matcher sees it: what its encoder is given, and where on the picture each region is."""

from dataclasses import dataclass, replace

import numpy as np
import torch

from diptych.common.errors import DiptychError
from diptych.data.batches import ImageBatch, Pixels, pad_regions
from diptych.data.collection import Regions
from diptych.data.feature_file import cell_boxes
from diptych.data.open_picture import Picture, open_picture
from diptych.matchers.base import Matcher


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
    if isinstance(image, Regions):
        if not matcher.takes_features:
            raise DiptychError("explain: this matcher takes pictures, and was given local features")
        if not len(image.vectors):
            raise DiptychError("explain: the picture's local features are empty; expected at least one region")
        return _from_regions(matcher, image)
    picture, extractor = open_picture(image), matcher.extractor()
    if matcher.takes_features:
        return _from_regions(matcher, extractor.regions([picture])[0])
    pixels = torch.from_numpy(extractor.prepare(picture)[None].copy())  # a picture's own memory is read-only
    seen = Seen(Pixels(pixels).to(matcher.device), extractor.boxes(picture.size), picture.size, extractor.grid)
    return _averaged(matcher, seen)


def _from_regions(matcher: Matcher, regions: Regions) -> Seen:
    batch = pad_regions([regions]).to(matcher.device)
    boxes = None if regions.boxes is None else np.asarray(regions.boxes, dtype=np.float32)
    size = regions.size
    if boxes is not None and size is None:
        # Nothing says how large the picture is; the boxes reach as far as is known.
        size = (max(1, int(np.ceil(boxes[:, 2].max()))), max(1, int(np.ceil(boxes[:, 3].max()))))
    grid = None if boxes is None or size is None else find_grid(boxes, size)
    return _averaged(matcher, Seen(batch, boxes, size, grid))


def _averaged(matcher: Matcher, seen: Seen) -> Seen:
    """The same with the places of fewer cells, where the matcher averages those of a grid."""
    cells: int | None = getattr(matcher.image_encoder.config, "cells", None)
    if cells is None:
        return seen
    boxes = None if seen.size is None else cell_boxes((cells, cells), seen.size)
    return replace(seen, boxes=boxes, grid=(cells, cells))


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


def hide_cells(pixels: Pixels, grid: tuple[int, int], places: torch.Tensor) -> Pixels:
    """Copies of one picture (1, height, width, 3), each with one cell painted in the picture's mean colour."""
    values = pixels.values.repeat(len(places), 1, 1, 1)
    mean = pixels.values.float().mean((0, 1, 2)).to(values.dtype)
    (rows, columns), (height, width) = grid, values.shape[1:3]
    for copy, place in zip(values, places.tolist(), strict=True):
        row, column = divmod(place, columns)
        top, bottom = height * row // rows, height * (row + 1) // rows
        left, right = width * column // columns, width * (column + 1) // columns
        copy[top:bottom, left:right] = mean
    return Pixels(values)
