"""Fewer cells of a grid: neighbouring ones averaged."""

import math

from torch import Tensor
from torch.nn import functional as F

from diptych.common.errors import DiptychError


def pool_cells(cells: Tensor, side: int) -> Tensor:
    """Cells (n, k, f) of a square grid, in reading order, averaged to side x side: (n, side * side, f)."""
    n, k, f = cells.shape
    before = math.isqrt(k)
    if before * before != k or side > before:
        raise DiptychError(
            f"image.cells: {k} local vectors a picture; expected a square grid of at least {side} a side"
        )
    grid = cells.transpose(1, 2).reshape(n, f, before, before)
    return F.adaptive_avg_pool2d(grid, side).flatten(2).transpose(1, 2)
